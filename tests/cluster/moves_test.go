package cluster

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// bucketStatus is what a node says of a bucket.
type bucketStatus struct {
	Moving, Replicas, WantedReplicas, MissingCopies int
	Nodes                                           []struct {
		Node   string
		Active int
	}
}

// status asks a node how the bucket is.
func (n *node) status(t *testing.T) bucketStatus {
	t.Helper()
	var status struct{ Buckets []bucketStatus }
	n.readStatus(t, &status)
	return status.Buckets[0]
}

// readStatus reads the status of the cluster, as a node sees it.
func (n *node) readStatus(t *testing.T, status any) {
	t.Helper()
	output, err := exec.Command(binary(t), "cluster", "status", "--json", "-U",
		fmt.Sprintf("http://%s:%d", n.host, n.mgmt), "-u", user, "-P", password).Output()
	// A cluster that is not whole is shown, and is an error.
	if err != nil && len(output) == 0 {
		t.Fatal(err)
	}
	if err := json.Unmarshal(output, status); err != nil {
		t.Fatal(err)
	}
}

// actives asks a node how many active vBuckets each node has, and how many are moving.
func (n *node) actives(t *testing.T) (actives map[string]int, moving int) {
	t.Helper()
	status := n.status(t)
	actives = map[string]int{}
	for _, each := range status.Nodes {
		actives[each.Node] = each.Active
	}
	return actives, status.Moving
}

// A node that was failed over and is back gets its active vBuckets again, from nodes that run and are written to.
func TestActivesMoveBackUnderLoad(t *testing.T) {
	for _, count := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			t.Parallel()
			all := clusterOf(t, count, count-1, nil)
			before, _ := all[0].actives(t)
			load := startClients(t, all, allLevels...)
			load.more(t, 300)
			for range 2 {
				all.lose(t, load, func(lost *node) { all.failOver(t, lost) })
				all.caughtUp(t)
				if has, _ := all[0].actives(t); has[last(all).name] != 0 {
					t.Fatalf("it is a replica only: %v", has)
				}
				load.more(t, 300)
				if err := all[0].tool(t, "balance"); err != nil {
					t.Fatal(err)
				}
				until(t, "all have what they had", func() bool {
					after, moving := all[0].actives(t)
					return moving == 0 && fmt.Sprint(after) == fmt.Sprint(before)
				})
				load.more(t, 300)
			}
			load.finish(t)
		})
	}
}

// Nothing is lost of what is acknowledged without durability either, as long as no node dies.
func TestMovesLoseNothingThatWasAcknowledged(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 2, 1, nil)
	load := startClients(t, all, gocb.DurabilityLevelNone)
	load.more(t, 500)
	for round := range 3 {
		for vbucket := range 8 {
			to := all[(round+1)%2]
			if err := all[0].tool(t, "move", bucketName, fmt.Sprint(vbucket), to.name); err != nil {
				t.Fatal(err)
			}
		}
		load.more(t, 300)
	}
	load.finish(t)
}

// A node dies in the midst of moves: the one that gives, or the one that takes.
func TestANodeDiesWhileVBucketsMove(t *testing.T) {
	for name, gives := range map[string]bool{"gives": true, "takes": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := clusterOf(t, 3, 2, nil)
			load := startClients(t, all, allLevels...)
			load.more(t, 300)
			// What n_2 had is led by others, and it is a replica.
			all.lose(t, load, func(lost *node) { all.failOver(t, lost) })
			all.caughtUp(t)
			load.more(t, 300)
			moved := make(chan error, 1)
			go func() { moved <- all[0].tool(t, "balance") }()
			dies := last(all)
			if gives {
				dies = all[1]
			}
			until(t, "something moves, or has moved", func() bool {
				has, moving := all[0].actives(t)
				return moving > 0 || has[last(all).name] > 0
			})
			load.mayFail(nodeLost)
			dies.kill()
			until(t, "it is failed over", func() bool { return all[0].tool(t, "failover", dies.name) == nil })
			load.isOver()
			load.more(t, 300)
			start(t, dies)
			all.recover(t, dies)
			all.caughtUp(t)
			if err := <-moved; err != nil {
				t.Log(err)
			}
			until(t, "all is balanced", func() bool { return all[0].tool(t, "balance") == nil })
			load.more(t, 300)
			load.finish(t)
		})
	}
}
