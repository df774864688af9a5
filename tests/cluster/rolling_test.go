package cluster

import (
	"syscall"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// end ends a node as a service manager does.
func (n *node) end(t *testing.T) {
	t.Helper()
	n.signal(t, syscall.SIGTERM)
	if err := n.command.Wait(); err != nil {
		t.Fatalf("%s: %v", n.name, err)
	}
}

// restart ends a node as a service manager does, and starts it again.
func (n *node) restart(t *testing.T) {
	t.Helper()
	n.end(t)
	start(t, n)
}

// One node after the other is drained and started again, as for a new release, and clients see no error.
func TestEtcdRollingRestartWithoutErrors(t *testing.T) {
	t.Parallel()
	all := clusterIn(t, inEtcd(t, debian), t.TempDir(), 3, 2, nil)
	load := startClients(t, all, append([]gocb.DurabilityLevel{gocb.DurabilityLevelNone}, allLevels...)...)
	load.more(t, 500)
	for _, each := range all {
		all.drain(t, each, load)
		each.restart(t)
		all.takeBack(t, each, load)
	}
	load.finish(t)
}

// drain takes all actives away from a node.
func (all nodes) drain(t *testing.T, each *node, load *clients) {
	t.Helper()
	if err := each.tool(t, "drain", each.name); err != nil {
		t.Fatal(err)
	}
	if has, _ := each.actives(t); has[each.name] != 0 {
		t.Fatalf("it is drained: %v", has)
	}
	load.more(t, 200)
}

// takeBack gives a node its actives that was drained and started again.
func (all nodes) takeBack(t *testing.T, each *node, load *clients) {
	t.Helper()
	all.caughtUp(t)
	load.more(t, 200)
	until(t, "the actives are back", func() bool {
		if err := all[0].tool(t, "balance"); err != nil {
			return false
		}
		has, moving := all[0].actives(t)
		return moving == 0 && has[each.name] >= vbuckets/len(all)
	})
	load.more(t, 200)
}

// A running node leaves gracefully, and clients see no error: not of its return either.
func TestEtcdGracefulFailoverWithoutErrors(t *testing.T) {
	t.Parallel()
	all := clusterIn(t, inEtcd(t, current), t.TempDir(), 3, 2, nil)
	load := startClients(t, all, allLevels...)
	load.more(t, 500)
	if err := all[0].tool(t, "failover", "--graceful", last(all).name); err != nil {
		t.Fatal(err)
	}
	load.more(t, 500)
	last(all).restart(t)
	all.recover(t, last(all))
	all.caughtUp(t)
	if err := all[0].tool(t, "balance"); err != nil {
		t.Fatal(err)
	}
	load.more(t, 500)
	load.finish(t)
}
