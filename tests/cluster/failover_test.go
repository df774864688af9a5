package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// embedded returns the address of a coordination store without etcd, in a directory.
func embedded(directory string) string { return "embedded:" + filepath.Join(directory, "coordinator") }

// clusterOf starts nodes of a cluster in which each vBucket has `replicas`, in namespaces of their own if there is a
// network.
func clusterOf(t *testing.T, count, replicas int, net *network) nodes {
	t.Helper()
	directory := t.TempDir()
	return clusterIn(t, embedded(directory), directory, count, replicas, net)
}

// clusterIn starts nodes of a cluster in a coordination store.
func clusterIn(t *testing.T, store, directory string, count, replicas int, net *network) nodes {
	t.Helper()
	var all nodes
	for number := range count {
		all = append(all, newMember(t, store, directory, number, net))
	}
	all.form(t, replicas)
	return all
}

// form starts nodes that are to be a cluster. The first one creates it, the others are added, and the bucket is spread over all
// of them.
func (all nodes) form(t *testing.T, replicas int) {
	t.Helper()
	all.endWith(t)
	for number, each := range all {
		each.begin(t)
		if number > 0 {
			until(t, each.name+" is added", func() bool { return all[0].tool(t, "add", each.name) == nil })
		}
		each.waitReady(t)
	}
	words := []string{"bucket", "create", bucketName, "--replicas", strconv.Itoa(replicas), "--vbuckets", strconv.Itoa(vbuckets),
		"-U", fmt.Sprintf("http://%s:%d", all[0].host, all[0].mgmt), "-u", user, "-P", password}
	if output, err := exec.Command(binary(t), words...).CombinedOutput(); err != nil {
		t.Fatalf("kedge %s: %v: %s", strings.Join(words, " "), err, output)
	}
	// Most tests stop and kill nodes, and fail them over by hand.
	if err := all[0].tool(t, "auto-failover", "--disable"); err != nil {
		t.Fatal(err)
	}
}

// newMember returns a node that has not been started, n_0 for number 0.
func newMember(t *testing.T, store, directory string, number int, net *network) *node {
	t.Helper()
	ports := freePorts(t, 2)
	name := fmt.Sprintf("n_%d", number)
	made := &node{
		name: name, host: "127.0.0.1", kv: ports[0], mgmt: ports[1], directory: filepath.Join(directory, name),
		flags: []string{"--coordinator", store, "--node-name", name, "--bucket", ""},
	}
	if net != nil {
		made.host, made.before = net.add(number)
	}
	return made
}

// tool runs a command of `kedge cluster` at a node.
func (n *node) tool(t *testing.T, words ...string) error {
	t.Helper()
	words = append([]string{"cluster"}, words...)
	words = append(words, "-U", fmt.Sprintf("http://%s:%d", n.host, n.mgmt), "-u", user, "-P", password)
	output, err := exec.Command(binary(t), words...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kedge %s: %w: %s", strings.Join(words, " "), err, output)
	}
	t.Logf("kedge cluster %s: %s", strings.Join(words[1:len(words)-6], " "), strings.TrimSpace(string(output)))
	return nil
}

// failOver promotes the replicas of a node that is gone; the first node carries it out.
func (all nodes) failOver(t *testing.T, lost *node) {
	t.Helper()
	if err := all[0].tool(t, "failover", lost.name); err != nil {
		t.Fatal(err)
	}
}

// recover puts a node back that runs again; the first node carries it out.
func (all nodes) recover(t *testing.T, back *node) {
	t.Helper()
	until(t, back.name+" is put back", func() bool { return all[0].tool(t, "recover", back.name) == nil })
}

// caughtUp waits until all that were put back count, as the first node says.
func (all nodes) caughtUp(t *testing.T) {
	t.Helper()
	until(t, "all copies count", func() bool { return all[0].status(t).MissingCopies == 0 })
}

// stop sends SIGSTOP. A node that holds the lock of an embedded store would keep it, and no other node could renew its lease: so
// the test has the lock until all threads have stopped.
func (n *node) stop(t *testing.T) {
	t.Helper()
	directory, isEmbedded := strings.CutPrefix(n.store(), "embedded:")
	if !isEmbedded {
		n.signal(t, syscall.SIGSTOP)
		return
	}
	lock, err := os.Open(filepath.Join(directory, "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	n.signal(t, syscall.SIGSTOP)
	until(t, n.name+" has stopped", n.hasStopped)
}

// hasStopped says whether all threads of the node were stopped by a signal.
func (n *node) hasStopped() bool {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.command.Process.Pid))
	for _, file := range files {
		// The state follows the name, which may have parentheses of its own (proc_pid_stat(5)).
		stat, _ := os.ReadFile(file)
		if state := stat[bytes.LastIndexByte(stat, ')')+1:]; !bytes.HasPrefix(state, []byte(" T")) {
			return false
		}
	}
	return len(files) > 0
}

// store returns the address of the node's coordination store.
func (n *node) store() string { return n.flags[slices.Index(n.flags, "--coordinator")+1] }

func (n *node) goOn(t *testing.T) { t.Helper(); n.signal(t, syscall.SIGCONT) }
func last[T any](all []T) T       { return all[len(all)-1] }

// lose kills the last node, lets others take over, and puts it back.
func (all nodes) lose(t *testing.T, load *clients, failOver func(lost *node)) {
	t.Helper()
	// Two nodes of three are a majority, and one of two is none.
	isMajority := len(all) > 2
	allowed := majorityLost
	if isMajority {
		allowed = nodeLost
	}
	load.mayFail(allowed)
	last(all).kill()
	failOver(last(all))
	if isMajority {
		load.isOver()
		load.more(t, 500)
	}
	start(t, last(all))
	all.recover(t, last(all))
	if !isMajority {
		all.caughtUp(t)
		load.isOver()
	}
}

// A node dies under durable writes, its replicas take over, and it comes back.
func TestAKilledNodeIsFailedOver(t *testing.T) {
	for _, count := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			t.Parallel()
			all := clusterOf(t, count, count-1, nil)
			load := startClients(t, all, allLevels...)
			load.more(t, 500)
			all.lose(t, load, func(lost *node) { all.failOver(t, lost) })
			load.more(t, 500)
			load.finish(t)
		})
	}
}

// A node that hangs is failed over. When it goes on it may believe for a moment that it is still the active one.
func TestAStoppedNodeIsFailedOver(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 3, 2, nil)
	load := startClients(t, all, allLevels...)
	load.more(t, 500)
	load.mayFail(nodeLost)
	last(all).stop(t)
	load.stall(t)
	all.failOver(t, last(all))
	load.isOver()
	load.more(t, 500)
	last(all).goOn(t)
	load.more(t, 500)
	all.recover(t, last(all))
	load.more(t, 500)
	load.finish(t)
}

// A node dies and comes back before anybody did something about it. What its memory alone had, the others have.
func TestAKilledNodeComesBack(t *testing.T) {
	for _, count := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			t.Parallel()
			all := clusterOf(t, count, count-1, nil)
			load := startClients(t, all, allLevels...)
			for _, each := range all {
				load.more(t, 300)
				load.mayFail(nodeLost)
				each.kill()
				start(t, each)
				load.areServed(t)
				load.isOver()
			}
			load.more(t, 300)
			load.finish(t)
		})
	}
}

// All nodes die at once: what was persisted by a majority is there.
func TestAllNodesAreKilled(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 3, 2, nil)
	load := startClients(t, all, gocb.DurabilityLevelPersistToMajority)
	for range 2 {
		load.more(t, 300)
		load.mayFail(nodeLost)
		for _, each := range all {
			each.kill()
		}
		start(t, all...)
		load.areServed(t)
		load.isOver()
	}
	load.more(t, 300)
	load.finish(t)
}

// A node loses its connections to all others and to the clients, is failed over, and finds that out later.
func TestACutNodeIsFailedOver(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	all := clusterOf(t, 3, 2, net)
	load := startClients(t, all, allLevels...)
	load.more(t, 500)
	load.mayFail(nodeLost)
	net.cut(2)
	load.stall(t)
	all.failOver(t, all[2])
	load.isOver()
	load.more(t, 500)
	net.mend(2)
	load.more(t, 500)
	all.recover(t, all[2])
	load.more(t, 500)
	load.finish(t)
}

// A node that is cut off for a while and not failed over has lost nothing.
func TestACutNodeComesBack(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	all := clusterOf(t, 2, 1, net)
	load := startClients(t, all, allLevels...)
	for number := range all {
		load.more(t, 300)
		load.mayFail(nodeLost)
		net.cut(number)
		load.stall(t)
		net.mend(number)
		load.areServed(t)
		load.isOver()
	}
	load.more(t, 300)
	load.finish(t)
}

// A node that only the clients still reach is failed over: what it alone has taken was never acknowledged.
func TestANodeWithoutItsReplicasIsFailedOver(t *testing.T) {
	t.Parallel()
	load := partedFromItsReplicas(t, func(load *clients) { load.stall(t) }, allLevels...)
	load.finish(t)
}

// The same without durability, to see that these tests would notice: writes of the node that is cut off are lost.
func TestLostWritesAreNoticed(t *testing.T) {
	t.Parallel()
	noticed := false
	// What is lost may have been written anew before anyone looks.
	for try := 0; try < 5 && !noticed; try++ {
		t.Run(fmt.Sprint(try), func(t *testing.T) {
			load := partedFromItsReplicas(t, func(load *clients) { load.more(t, 500) }, gocb.DurabilityLevelNone)
			noticed = len(load.lost(t)) > 0 && len(load.history.suspects()) > 0
		})
	}
	if !noticed {
		t.Fatal("nothing was lost, or nobody noticed")
	}
}

// partedFromItsReplicas lets a node lose its connections to the others, but not to the clients, waits, and fails it over.
func partedFromItsReplicas(t *testing.T, wait func(*clients), levels ...gocb.DurabilityLevel) *clients {
	t.Helper()
	net := newNetwork(t)
	all := clusterOf(t, 3, 2, net)
	load := startClients(t, all, levels...)
	load.more(t, 500)
	load.mayFail(nodeLost)
	net.part(2, 0)
	net.part(2, 1)
	wait(load)
	all.failOver(t, all[2])
	load.isOver()
	load.more(t, 500)
	net.join(2, 0)
	net.join(2, 1)
	all.recover(t, all[2])
	load.more(t, 500)
	return load
}
