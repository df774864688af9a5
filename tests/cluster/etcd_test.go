package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// etcd is a member of a coordination store.
type etcd struct {
	name, directory, host string
	client, peer          int
	// All members with their addresses.
	cluster string
	// Words before the binary.
	before  []string
	command *exec.Cmd
}

// etcds are all members of a store.
type etcds []*etcd

// wantEtcd skips the test without KEDGE_TEST_ETCD. `make test-etcd` installs etcd and sets it.
func wantEtcd(t *testing.T) {
	t.Helper()
	if os.Getenv("KEDGE_TEST_ETCD") == "" {
		t.Skip("SKIPPED: make test-etcd runs this")
	}
}

// newEtcd starts a store of one member.
func newEtcd(t *testing.T) *etcd {
	t.Helper()
	wantEtcd(t)
	ports := freePorts(t, 2)
	made := etcds{{name: "one", directory: t.TempDir(), host: "127.0.0.1", client: ports[0], peer: ports[1]}}
	made.run(t)
	return made[0]
}

// firstMember is the number of the namespace of the first member of etcd. Those of nodes are below.
const firstMember = 10

// newEtcds starts a store of three members in namespaces of their own, [firstMember] and the next two.
func newEtcds(t *testing.T, net *network) etcds {
	t.Helper()
	var made etcds
	for number := range 3 {
		host, before := net.add(firstMember + number)
		made = append(made, &etcd{
			name: fmt.Sprintf("m%d", number), directory: t.TempDir(), host: host, client: 2379, peer: 2380, before: before,
		})
	}
	made.run(t)
	return made
}

// run starts all members for the first time, and ends them with the test.
func (all etcds) run(t *testing.T) {
	t.Helper()
	var members []string
	for _, each := range all {
		members = append(members, fmt.Sprintf("%s=http://%s:%d", each.name, each.host, each.peer))
	}
	for _, each := range all {
		each.cluster = strings.Join(members, ",")
		t.Cleanup(each.kill)
	}
	all.start(t)
}

// start starts members, and waits until they listen.
func (all etcds) start(t *testing.T) {
	t.Helper()
	for _, each := range all {
		each.begin(t)
	}
	for _, each := range all {
		until(t, "etcd listens", func() bool {
			connection, err := net.Dial("tcp", net.JoinHostPort(each.host, strconv.Itoa(each.client)))
			if err == nil {
				connection.Close()
			}
			return err == nil
		})
	}
}

// url returns the address of the store for nodes.
func (all etcds) url() string {
	var members []string
	for _, each := range all {
		members = append(members, fmt.Sprintf("%s:%d", each.host, each.client))
	}
	return "etcd://" + strings.Join(members, ",") + "/test"
}

func (e *etcd) start(t *testing.T) { t.Helper(); etcds{e}.start(t) }

func (e *etcd) begin(t *testing.T) {
	t.Helper()
	client, peer := fmt.Sprintf("http://%s:%d", e.host, e.client), fmt.Sprintf("http://%s:%d", e.host, e.peer)
	words := append(append([]string{}, e.before...), "etcd", "--data-dir", filepath.Join(e.directory, "data"), "--name", e.name,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", e.cluster)
	e.command = exec.Command(words[0], words[1:]...)
	e.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.command.Start(); err != nil {
		t.Fatal(err)
	}
}

func (e *etcd) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := e.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (e *etcd) kill() {
	_ = e.command.Process.Kill()
	_ = e.command.Wait()
}

// createBucket asks a node for another bucket.
func (n *node) createBucket(t *testing.T, name string) error {
	t.Helper()
	words := []string{"bucket", "create", name, "--vbuckets", "8",
		"-U", fmt.Sprintf("http://%s:%d", n.host, n.mgmt), "-u", user, "-P", password}
	output, err := exec.Command(binary(t), words...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kedge bucket create %s: %w: %s", name, err, output)
	}
	return nil
}

// servesBy waits until a node serves for this reason.
func (n *node) servesBy(t *testing.T, reason string) {
	t.Helper()
	until(t, n.name+" serves by "+reason, func() bool {
		var status struct {
			Coordinator struct{ Lease struct{ ServesBy string } }
		}
		if err := json.Unmarshal(n.fetch(t, "/kedge/cluster/status"), &status); err != nil {
			t.Fatal(err)
		}
		return status.Coordinator.Lease.ServesBy == reason
	})
}

// Clients do not notice that etcd is gone. The cluster cannot be changed before it is back.
func TestEtcdIsKilledAndRestarted(t *testing.T) {
	t.Parallel()
	store := newEtcd(t)
	all := clusterIn(t, etcds{store}.url(), t.TempDir(), 3, 2, nil)
	load := startClients(t, all, allLevels...)
	load.more(t, 300)
	store.kill()
	for _, each := range all {
		each.servesBy(t, "promises")
	}
	load.more(t, 1000)
	err := all[1].createBucket(t, "second")
	if err == nil || !strings.Contains(err.Error(), "coordination store") {
		t.Fatalf("the refusal does not name the store: %v", err)
	}
	// A node that was a member starts without the store. It has no lease, and promises the others nothing.
	last(all).kill()
	last(all).begin(t)
	for _, each := range all[:2] {
		each.becomes(t, "noLease")
	}
	store.start(t)
	last(all).waitReady(t)
	load.more(t, 300)
	until(t, "the cluster can be changed", func() bool { return all[1].createBucket(t, "second") == nil })
	last(all).kill()
	all.failOver(t, last(all))
	load.more(t, 300)
	start(t, last(all))
	all.recover(t, last(all))
	load.more(t, 300)
	load.finish(t)
}

// Without etcd nothing is failed over, and without the promise of the lost node nobody serves. Both end when etcd is back.
func TestANodeIsLostWhileEtcdIsGone(t *testing.T) {
	t.Parallel()
	store := newEtcd(t)
	url := fmt.Sprintf("etcd://127.0.0.1:%d/test", store.client)
	all := clusterIn(t, url, t.TempDir(), 3, 2, nil)
	all.failOverBySelf(t, "1s")
	load := startClients(t, all, allLevels...)
	load.more(t, 300)
	store.kill()
	for _, each := range all {
		each.servesBy(t, "promises")
	}
	load.more(t, 300)
	last(all).kill()
	for _, each := range all[:2] {
		each.becomes(t, "noLease")
	}
	store.start(t)
	all.hasFailedOver(t, last(all))
	load.more(t, 300)
	start(t, last(all))
	all.recover(t, last(all))
	load.more(t, 300)
	load.finish(t)
}
