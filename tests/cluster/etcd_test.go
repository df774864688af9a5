package cluster

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// etcd is a cluster of one member.
type etcd struct {
	directory    string
	client, peer int
	command      *exec.Cmd
}

// newEtcd starts a member. `make test-etcd` installs it and runs these tests; without KEDGE_TEST_ETCD they are skipped.
func newEtcd(t *testing.T) *etcd {
	t.Helper()
	if os.Getenv("KEDGE_TEST_ETCD") == "" {
		t.Skip("SKIPPED: make test-etcd runs this")
	}
	ports := freePorts(t, 2)
	made := &etcd{directory: t.TempDir(), client: ports[0], peer: ports[1]}
	t.Cleanup(made.kill)
	made.start(t)
	return made
}

func (e *etcd) start(t *testing.T) {
	t.Helper()
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", e.client), fmt.Sprintf("http://127.0.0.1:%d", e.peer)
	e.command = exec.Command("etcd", "--data-dir", filepath.Join(e.directory, "data"), "--name", "one",
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one="+peer)
	e.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.command.Start(); err != nil {
		t.Fatal(err)
	}
	until(t, "etcd listens", func() bool {
		connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", e.client))
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
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
	url := fmt.Sprintf("etcd://127.0.0.1:%d/test", store.client)
	all := clusterIn(t, url, t.TempDir(), 3, 2, nil)
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
	all.failOverBySelf(t)
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
