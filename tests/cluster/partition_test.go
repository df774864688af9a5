package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// leaseStatus is what a node says of its lease.
type leaseStatus struct {
	Serves                     bool
	Renewals, Failures, Lapses uint64
}

// clusterStatus is what a node says of the cluster.
type clusterStatus struct {
	Coordinator struct {
		Lease         leaseStatus
		WentBackwards bool
		// Empty if the store can be used.
		Trouble string
	}
	Nodes []struct {
		Name       string
		FailedOver bool
	}
}

func (n *node) clusterStatus(t *testing.T) (status clusterStatus) {
	t.Helper()
	if err := json.Unmarshal(n.fetch(t, "/kedge/cluster/status"), &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// losesStore waits until the renewals of a node's lease have failed for at least two lease times.
func (n *node) losesStore(t *testing.T) {
	t.Helper()
	before := n.clusterStatus(t).Coordinator.Lease.Failures
	until(t, n.name+" cannot renew its lease", func() bool {
		return n.clusterStatus(t).Coordinator.Lease.Failures >= before+8
	})
}

// renews waits until a node has renewed its lease for at least two lease times.
func (n *node) renews(t *testing.T) {
	t.Helper()
	before := n.clusterStatus(t).Coordinator.Lease.Renewals
	until(t, n.name+" renews its lease", func() bool {
		return n.clusterStatus(t).Coordinator.Lease.Renewals >= before+8
	})
}

// hasNoFailover fails the test if a node was failed over.
func (all nodes) hasNoFailover(t *testing.T) {
	t.Helper()
	for _, each := range all[0].clusterStatus(t).Nodes {
		if each.FailedOver {
			t.Errorf("%s is failed over", each.Name)
		}
	}
}

// divisible is a cluster in a network of its own, with clients.
type divisible struct {
	net   *network
	all   nodes
	store etcds
	load  *clients
}

// startDivisible starts nodes that all have a copy of each vBucket, a store of three members, automatic failover after this
// time, and clients. Nodes and members are in namespaces, with cables that can be slow if they are `relayed`.
func startDivisible(t *testing.T, count int, timeout string, release etcdRelease, relayed bool) divisible {
	t.Helper()
	wantEtcd(t)
	net := newNetwork(t)
	net.relayed = relayed
	store := newEtcds(t, release, net)
	all := clusterIn(t, store.url(), t.TempDir(), count, count-1, net)
	all.failOverBySelf(t, timeout)
	load := startClients(t, all, allLevels...)
	load.more(t, 300)
	return divisible{net: net, all: all, store: store, load: load}
}

// recovered puts the last node back, and ends the test when all copies count. Without a majority clients saw errors until then.
func (d divisible) recovered(t *testing.T) {
	t.Helper()
	d.all.recover(t, last(d.all))
	d.load.more(t, 300)
	d.all.caughtUp(t)
	d.load.isOver()
	d.load.finish(t)
}

// A node and a member of etcd lose the others: wholly, or in one direction. Clients still reach all nodes. The majority
// fails the node over, and the node acknowledges nothing that the others do not know.
func TestEtcdAndNodesAreDivided(t *testing.T) {
	for name, directions := range map[string][2]bool{
		"both ways": {true, true}, "what the minority sends is lost": {true, false}, "what it is sent is lost": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			it := startDivisible(t, 3, "1s", current, false)
			net, all, load := it.net, it.all, it.load
			each := func(change func(from, to int)) {
				for _, inside := range []int{2, firstMember + 2} {
					for _, outside := range []int{0, 1, firstMember, firstMember + 1} {
						if directions[0] {
							change(inside, outside)
						}
						if directions[1] {
							change(outside, inside)
						}
					}
				}
			}
			load.mayFail(nodeLost)
			each(net.lose)
			all.hasFailedOver(t, last(all))
			load.isOver()
			load.more(t, 500)
			each(net.carry)
			load.more(t, 300)
			it.recovered(t)
		})
	}
}

// Only the connections of a node to etcd are lost. Whether it is failed over or not: clients are served.
func TestEtcdIsOutOfReachOfOneNode(t *testing.T) {
	t.Parallel()
	it := startDivisible(t, 3, "1s", debian, false)
	net, all, store, load := it.net, it.all, it.store, it.load
	load.mayFail(nodeLost)
	for number := range store {
		net.part(2, firstMember+number)
	}
	last(all).losesStore(t)
	load.more(t, 500)
	for number := range store {
		net.join(2, firstMember+number)
	}
	last(all).renews(t)
	if last(all[0].clusterStatus(t).Nodes).FailedOver {
		all.recover(t, last(all))
	}
	load.areServed(t)
	load.isOver()
	load.more(t, 300)
	all.caughtUp(t)
	load.finish(t)
}

// A node does not reach etcd, and serves by the promises of the others. Meanwhile somebody starts it on another machine with
// its disk. The new process serves when the old one does not any more.
func TestEtcdANodeIsStartedOnAnotherMachine(t *testing.T) {
	t.Parallel()
	it := startDivisible(t, 3, "1s", debian, false)
	// Its files are copied.
	it.load.stop()
	old := last(it.all)
	for number := range it.store {
		it.net.part(2, firstMember+number)
	}
	old.servesBy(t, "promises")

	moved := newMember(t, it.store.url(), t.TempDir(), 3, it.net)
	moved.flags = old.flags
	it.net.part(2, 3)
	data := filepath.Join(moved.directory, "data")
	if err := os.CopyFS(data, os.DirFS(filepath.Join(old.directory, "data"))); err != nil {
		t.Fatal(err)
	}
	nodes{moved}.endWith(t)
	moved.begin(t)
	moved.waitReady(t)
	if lease := old.clusterStatus(t).Coordinator.Lease; lease.Serves || lease.Lapses == 0 {
		t.Errorf("the old process serves: %+v", lease)
	}
	moved.servesBy(t, "lease")
	if !strings.Contains(moved.log(), "the lease of this node is held by another process") {
		t.Error("the new process did not wait for the old one")
	}
	// Clients still know the address of the old process.
	it.load.mayFail(nodeLost)
	it.load.begin(uint64(time.Now().UnixNano()))
	it.load.areServed(t)
	it.load.isOver()
	it.load.more(t, 300)
	it.load.finish(t)
}

// etcd's leader hangs, and dies. Another one is elected, and no node is failed over.
func TestEtcdLosesItsLeader(t *testing.T) {
	t.Parallel()
	it := startDivisible(t, 3, "1s", current, false)
	all, store, load := it.all, it.store, it.load
	for _, member := range store {
		member.signal(t, syscall.SIGSTOP)
		for _, each := range all {
			each.renews(t)
		}
		member.signal(t, syscall.SIGCONT)
		member.kill()
		for _, each := range all {
			each.renews(t)
		}
		member.start(t)
		load.more(t, 100)
	}
	all.hasNoFailover(t)
	load.finish(t)
}

// etcd has no majority, so nobody can renew a lease. The nodes promise each other not to take over, and go on. A node that
// dies meanwhile is failed over when etcd is back, and not before.
func TestEtcdLosesItsMajority(t *testing.T) {
	t.Parallel()
	it := startDivisible(t, 3, "1s", debian, false)
	all, store, load := it.all, it.store, it.load
	for _, member := range store[1:] {
		member.kill()
	}
	for _, each := range all {
		each.losesStore(t)
	}
	load.more(t, 500)
	for _, each := range all {
		if lease := each.clusterStatus(t).Coordinator.Lease; !lease.Serves || lease.Lapses != 0 {
			t.Errorf("%s stopped serving: %+v", each.name, lease)
		}
	}
	load.mayFail(nodeLost)
	last(all).kill()
	all[0].losesStore(t)
	all.hasNoFailover(t)
	store[1:].start(t)
	all.hasFailedOver(t, last(all))
	load.isOver()
	load.more(t, 300)
	start(t, last(all))
	it.recovered(t)
}

// The cable of a node is slow and loses frames. That is no reason to fail it over.
func TestEtcdAndNodesAreFarAway(t *testing.T) {
	t.Parallel()
	// A lost frame is sent again after 200 ms.
	it := startDivisible(t, 3, "3s", debian, true)
	net, all, load := it.net, it.all, it.load
	for _, number := range []int{2, firstMember} {
		cable := net.relays[number]
		cable.delay.Store(int64(10 * time.Millisecond))
		cable.jitter.Store(int64(10 * time.Millisecond))
		cable.lost.Store(5)
	}
	load.more(t, 300)
	for _, each := range all {
		each.renews(t)
	}
	all.hasNoFailover(t)
	load.finish(t)
}
