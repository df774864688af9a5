package cluster

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// must runs a program of etcd to its end.
func (e *etcd) must(t *testing.T, program string, words ...string) {
	t.Helper()
	if output, err := e.release.program(t, nil, program, words...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", program, words, err, output)
	}
}

// save asks a member for a snapshot, and returns the path of its file.
func (e *etcd) save(t *testing.T) string {
	t.Helper()
	path := filepath.Join(e.directory, "snapshot")
	e.must(t, e.release.ctl, "--endpoints", fmt.Sprintf("http://%s:%d", e.host, e.client), "snapshot", "save", path)
	return path
}

// restore ends all members, and starts them again with what is in a snapshot.
func (all etcds) restore(t *testing.T, snapshot string) {
	t.Helper()
	for _, each := range all {
		each.kill()
	}
	for _, each := range all {
		each.data = "restored"
		each.must(t, each.release.restorer, "snapshot", "restore", snapshot, "--name", each.name,
			"--data-dir", filepath.Join(each.directory, each.data), "--initial-cluster", each.cluster,
			"--initial-advertise-peer-urls", each.peerURL(), "--initial-cluster-token", "restored")
	}
	all.start(t)
}

// exists says whether a node has a bucket.
func (n *node) exists(t *testing.T, bucket string) bool {
	t.Helper()
	response := n.get(t, "/pools/default/buckets/"+bucket)
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// haveRestored waits until a node has noticed that the store went backwards, and all use it again.
func (all nodes) haveRestored(t *testing.T) {
	t.Helper()
	until(t, "a node has noticed that the store went backwards", func() bool {
		for _, each := range all {
			if each.clusterStatus(t).Coordinator.WentBackwards {
				return true
			}
		}
		return false
	})
	for _, each := range all {
		each.servesBy(t, "lease")
		until(t, each.name+" uses the store", func() bool { return each.clusterStatus(t).Coordinator.Trouble == "" })
	}
}

// All members of etcd are restored from a snapshot under load, as docs/guides/backup.md says. The nodes put their map back, with
// a failover, a recovery and a bucket that the snapshot does not know.
func TestEtcdIsRestoredFromASnapshot(t *testing.T) {
	for name, release := range map[string]etcdRelease{"Debian": debian, "current": current} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newEtcdsHere(t, release, 3)
			all := clusterIn(t, store.url(), t.TempDir(), 3, 2, nil)
			all.failOverBySelf(t, "1s")
			load := startClients(t, all, allLevels...)
			load.more(t, 300)
			snapshot := store[1].save(t)
			failOver := func(lost *node) { all.hasFailedOver(t, lost) }
			all.lose(t, load, failOver)
			all.caughtUp(t)
			if err := all[1].createBucket(t, "second"); err != nil {
				t.Fatal(err)
			}
			actives, _ := all[0].actives(t)
			load.more(t, 300)

			// A lease of the store as it was says nothing, so that a write that is committed at this moment is not acknowledged.
			load.mayFail([]error{gocb.ErrDurabilityAmbiguous})
			store.restore(t, snapshot)
			load.more(t, 300)
			all.haveRestored(t)
			load.isOver()
			for _, each := range all {
				if !each.exists(t, "second") {
					t.Errorf("%s has lost a bucket", each.name)
				}
				if now, _ := each.actives(t); fmt.Sprint(now) != fmt.Sprint(actives) {
					t.Errorf("%s has other actives: %v, not %v", each.name, now, actives)
				}
			}
			load.more(t, 300)

			// The cluster can be changed, and its nodes protect each other again.
			until(t, "the cluster can be changed", func() bool { return all[1].createBucket(t, "third") == nil })
			if err := all[0].tool(t, "auto-failover", "--reset-count"); err != nil {
				t.Fatal(err)
			}
			all.lose(t, load, failOver)
			load.more(t, 300)
			load.finish(t)
		})
	}
}
