package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// olderRelease is the binary of the release before, which has a lower compatibility level. It is built with the tests.
func olderRelease(t *testing.T) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(binary(t)), "examples", "older_release")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `cargo build -p kedge --example older_release`, with the profile of the server", err)
	}
	return path
}

// compatibility is what the status says of the level in force.
type compatibility struct {
	Level    int
	IsHeld   bool
	WaitsFor []string
}

func (n *node) compatibility(t *testing.T) compatibility {
	t.Helper()
	var status struct{ Compatibility compatibility }
	n.readStatus(t, &status)
	return status.Compatibility
}

// clusterOfRelease starts three nodes of a release, with two replicas.
func clusterOfRelease(t *testing.T, release string) nodes {
	t.Helper()
	directory := t.TempDir()
	store := embedded(directory)
	var all nodes
	for number := range 3 {
		all = append(all, newMember(t, store, directory, number, nil))
		all[number].release = release
	}
	all.form(t, 2)
	return all
}

// One node after the other gets a newer release and one goes back in between. Clients see no error. The level is raised when all
// have the newer release and nobody holds it; a node of the older one is refused from then on.
func TestRollingUpgradeAndDowngradeWithoutErrors(t *testing.T) {
	t.Parallel()
	older := olderRelease(t)
	all := clusterOfRelease(t, older)
	load := startClients(t, all, append([]gocb.DurabilityLevel{gocb.DurabilityLevelNone}, allLevels...)...)
	load.more(t, 500)
	is := func(level int, waitsFor ...string) {
		t.Helper()
		until(t, "the level and its reason", func() bool {
			now := all[0].compatibility(t)
			return now.Level == level && strings.Join(now.WaitsFor, " ") == strings.Join(waitsFor, " ")
		})
	}
	replace := func(each *node, release string) {
		t.Helper()
		all.drain(t, each, load)
		each.release = release
		each.restart(t)
		all.takeBack(t, each, load)
	}
	is(1)
	replace(all[0], "")
	is(1, "n_1", "n_2")
	replace(all[1], "")
	is(1, "n_2")
	replace(all[0], older)
	is(1, "n_0", "n_2")
	replace(all[2], "")
	is(1, "n_0")
	if err := all[0].tool(t, "level", "--hold"); err != nil {
		t.Fatal(err)
	}
	replace(all[0], "")
	is(1)
	if err := all[0].tool(t, "level", "--raise"); err != nil {
		t.Fatal(err)
	}
	is(2)

	// No way back.
	each := last(all)
	all.drain(t, each, load)
	each.release = older
	each.end(t)
	each.begin(t)
	if err := each.command.Wait(); err == nil {
		t.Error("a node of the older release has started")
	}
	said := "the cluster has compatibility level 2, and this release"
	if log := each.log(); !strings.Contains(log, said) || !strings.Contains(log, `, as node "n_0" does`) {
		t.Errorf("it does not say why: %s", log)
	}
	each.release = ""
	start(t, each)
	all.takeBack(t, each, load)
	load.finish(t)
}
