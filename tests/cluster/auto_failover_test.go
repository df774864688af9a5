package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// failOverBySelf has the cluster fail nodes over automatically, after this time.
func (all nodes) failOverBySelf(t *testing.T, timeout string) {
	t.Helper()
	if err := all[0].tool(t, "auto-failover", "--enable", "--timeout", timeout); err != nil {
		t.Fatal(err)
	}
}

// hasFailedOver waits until the others have failed a node over.
func (all nodes) hasFailedOver(t *testing.T, lost *node) {
	t.Helper()
	until(t, lost.name+" is failed over", func() bool {
		for _, node := range all[0].clusterStatus(t).Nodes {
			if node.Name == lost.name {
				return node.FailedOver
			}
		}
		return false
	})
}

// A node dies under durable writes, and the others take over by themselves.
func TestAKilledNodeIsFailedOverAutomatically(t *testing.T) {
	for _, count := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			t.Parallel()
			all := clusterOf(t, count, count-1, nil)
			all.failOverBySelf(t, "1s")
			load := startClients(t, all, allLevels...)
			load.more(t, 500)
			all.lose(t, load, func(lost *node) { all.hasFailedOver(t, lost) })
			load.more(t, 500)
			load.finish(t)
		})
	}
}

// A node that hangs for longer than its lease is failed over. What it does when it goes on must not be seen.
func TestAStoppedNodeIsFailedOverAutomatically(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 3, 2, nil)
	all.failOverBySelf(t, "1s")
	load := startClients(t, all, allLevels...)
	load.more(t, 500)
	load.mayFail(nodeLost)
	last(all).stop(t)
	all.hasFailedOver(t, last(all))
	load.isOver()
	load.more(t, 500)
	last(all).goOn(t)
	load.more(t, 500)
	all.recover(t, last(all))
	load.more(t, 500)
	load.finish(t)
}

// A node comes back soon, but without its disk. Its copies must not count until they are complete, so it is failed over.
func TestANodeThatLostItsDiskIsFailedOver(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 3, 1, nil)
	load := startClients(t, all, allLevels...)
	load.more(t, 500)
	// A chain of one cannot commit.
	load.mayFail(majorityLost)
	last(all).kill()
	if err := os.RemoveAll(filepath.Join(last(all).directory, "data")); err != nil {
		t.Fatal(err)
	}
	start(t, last(all))
	all.hasFailedOver(t, last(all))
	all.recover(t, last(all))
	all.caughtUp(t)
	load.isOver()
	load.more(t, 300)
	load.mayFail(majorityLost)
	all[0].kill()
	until(t, "its actives are elsewhere", func() bool { return all[1].tool(t, "failover", all[0].name) == nil })
	load.more(t, 300)
	start(t, all[0])
	all[1:].recover(t, all[0])
	all[1:].caughtUp(t)
	load.isOver()
	load.more(t, 300)
	load.finish(t)
}
