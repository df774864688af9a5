package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// network is a switch that the clients are at, and network namespaces of nodes with a cable each.
type network struct {
	t      *testing.T
	bridge string
	subnet string
	// Cables that can be slow, if they are wanted.
	relayed bool
	relays  map[int]*relay
}

var networks atomic.Int32

func ip(words ...string) error {
	output, err := exec.Command("ip", words...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}

func (n *network) must(words ...string) {
	n.t.Helper()
	if err := ip(words...); err != nil {
		n.t.Fatal(err)
	}
}

// newNetwork skips the test where namespaces may not be made, but not in CI.
func newNetwork(t *testing.T) *network {
	t.Helper()
	name := os.Getpid()%10_000*10 + int(networks.Add(1))
	made := &network{t: t, relays: map[int]*relay{}, bridge: fmt.Sprintf("kb%d", name), subnet: fmt.Sprintf("10.213.%d", name%250)}
	if err := ip("link", "add", made.bridge, "type", "bridge"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("SKIPPED: this wants to be root and to make network namespaces: %v", err)
	}
	t.Cleanup(func() { _ = ip("link", "del", made.bridge) })
	made.must("addr", "add", made.subnet+".1/24", "dev", made.bridge)
	made.must("link", "set", made.bridge, "up")
	return made
}

func (n *network) namespace(number int) string { return fmt.Sprintf("%s-%d", n.bridge, number) }
func (n *network) cable(number int) string     { return fmt.Sprintf("%sv%d", n.bridge, number) }
func (n *network) address(number int) string   { return fmt.Sprintf("%s.%d", n.subnet, 10+number) }

// add makes a namespace. Returns the node's address, and the words that run a program there.
func (n *network) add(number int) (string, []string) {
	n.t.Helper()
	name, cable := n.namespace(number), n.cable(number)
	n.must("netns", "add", name)
	n.t.Cleanup(func() { _ = ip("netns", "del", name) })
	if n.relayed {
		peer := fmt.Sprintf("%sw%d", n.bridge, number)
		n.relays[number] = newRelay(n.t, cable, peer)
		n.must("link", "set", peer, "netns", name, "name", "eth0")
	} else {
		n.must("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
	}
	n.must("link", "set", cable, "master", n.bridge, "up")
	n.must("-n", name, "addr", "add", n.address(number)+"/24", "dev", "eth0")
	n.must("-n", name, "link", "set", "lo", "up")
	n.must("-n", name, "link", "set", "eth0", "up")
	return n.address(number), []string{"ip", "netns", "exec", name}
}

// cut pulls a node's cable: what is on its way is lost, and nobody is told.
func (n *network) cut(number int) {
	n.t.Helper()
	n.must("link", "set", n.cable(number), "down")
}

// mend puts it back.
func (n *network) mend(number int) {
	n.t.Helper()
	n.must("link", "set", n.cable(number), "up")
}

// lose loses what one namespace sends to another. The other direction still works.
func (n *network) lose(from, to int) {
	n.t.Helper()
	n.must("-n", n.namespace(from), "route", "add", "blackhole", n.address(to))
}

// carry ends that.
func (n *network) carry(from, to int) {
	n.t.Helper()
	n.must("-n", n.namespace(from), "route", "del", "blackhole", n.address(to))
}

// part loses what two nodes send to each other; both still hear the clients.
func (n *network) part(one, other int) {
	n.t.Helper()
	n.lose(one, other)
	n.lose(other, one)
}

// join ends that.
func (n *network) join(one, other int) {
	n.t.Helper()
	n.carry(one, other)
	n.carry(other, one)
}

// Answers that are lost on their way leave open what became of a write, and nothing else.
func TestTheCableOfOneNodeIsCut(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	host, before := net.add(0)
	all := nodes{{name: "n_0", host: host, kv: 11210, mgmt: 8091, directory: t.TempDir(), before: before}}
	all.run(t)
	load := startClients(t, all, gocb.DurabilityLevelMajority, gocb.DurabilityLevelPersistToMajority)
	for range 2 {
		load.more(t, 300)
		load.mayFail(nodeLost)
		net.cut(0)
		load.stall(t)
		net.mend(0)
		load.areServed(t)
		load.isOver()
	}
	load.more(t, 300)
	load.finish(t)
}
