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
	release               etcdRelease
	// All members with their addresses.
	cluster string
	// The directory of its data, below its own.
	data string
	// Words before the binary.
	before  []string
	command *exec.Cmd
}

// etcds are all members of a store.
type etcds []*etcd

// etcdRelease is a release of etcd, with the paths of its programs.
type etcdRelease struct{ name, server, ctl, restorer string }

var (
	// debian is the release of the PATH, 3.4 in Debian 12.
	debian = etcdRelease{name: "Debian's", server: "etcd", ctl: "etcdctl", restorer: "etcdctl"}
	// current is the release that tests/etcd/go.mod names.
	current = etcdRelease{
		name: "a current", server: "../../.cache/etcd/server", ctl: "../../.cache/etcd/etcdctl",
		restorer: "../../.cache/etcd/etcdutl",
	}
)

// program returns the command that runs a program of a release.
func (r etcdRelease) program(t *testing.T, before []string, program string, words ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%s etcd is missing: %v: run `tests/run prepare etcd`", r.name, err)
	}
	words = append(append(append([]string{}, before...), path), words...)
	command := exec.Command(words[0], words[1:]...)
	// 3.4 starts on ARM with that only.
	command.Env = append(os.Environ(), "ETCDCTL_API=3", "ETCD_UNSUPPORTED_ARCH=arm64")
	return command
}

// introduce logs the version.
func (r etcdRelease) introduce(t *testing.T) {
	t.Helper()
	output, err := r.program(t, nil, r.server, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(string(output), "\n")
	t.Logf("%s etcd: %s", r.name, version)
}

// wantEtcd skips the test without KEDGE_TEST_ETCD. `make test-etcd` installs etcd, sets it, and runs the tests whose names begin
// with TestEtcd.
func wantEtcd(t *testing.T) {
	t.Helper()
	if !strings.HasPrefix(t.Name(), "TestEtcd") {
		t.Fatal("a test that needs etcd has a name that begins with TestEtcd")
	}
	if os.Getenv("KEDGE_TEST_ETCD") == "" {
		t.Skip("SKIPPED: make test-etcd runs this")
	}
}

// newEtcd starts a store of one member.
func newEtcd(t *testing.T, release etcdRelease) *etcd {
	t.Helper()
	return newEtcdsHere(t, release, 1)[0]
}

// newEtcdsHere starts a store of some members that have the host of the test.
func newEtcdsHere(t *testing.T, release etcdRelease, count int) (made etcds) {
	t.Helper()
	wantEtcd(t)
	for number := range count {
		ports := freePorts(t, 2)
		made = append(made, &etcd{
			name: fmt.Sprintf("m%d", number), directory: t.TempDir(), host: "127.0.0.1", client: ports[0], peer: ports[1],
			release: release,
		})
	}
	made.run(t)
	return made
}

// inEtcd starts a store of one member, and returns its address for nodes.
func inEtcd(t *testing.T, release etcdRelease) string {
	t.Helper()
	return etcds{newEtcd(t, release)}.url()
}

// firstMember is the number of the namespace of the first member of etcd. Those of nodes are below.
const firstMember = 10

// newEtcds starts a store of three members in namespaces of their own, [firstMember] and the next two.
func newEtcds(t *testing.T, release etcdRelease, net *network) etcds {
	t.Helper()
	var made etcds
	for number := range 3 {
		host, before := net.add(firstMember + number)
		made = append(made, &etcd{
			name: fmt.Sprintf("m%d", number), directory: t.TempDir(), host: host, client: 2379, peer: 2380, before: before,
			release: release,
		})
	}
	made.run(t)
	return made
}

// run starts all members for the first time, and ends them with the test.
func (all etcds) run(t *testing.T) {
	t.Helper()
	all[0].release.introduce(t)
	var members []string
	for _, each := range all {
		members = append(members, each.name+"="+each.peerURL())
	}
	for _, each := range all {
		each.cluster, each.data = strings.Join(members, ","), "data"
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

func (e *etcd) peerURL() string { return fmt.Sprintf("http://%s:%d", e.host, e.peer) }

func (e *etcd) start(t *testing.T) { t.Helper(); etcds{e}.start(t) }

func (e *etcd) begin(t *testing.T) {
	t.Helper()
	client, peer := fmt.Sprintf("http://%s:%d", e.host, e.client), e.peerURL()
	e.command = e.release.program(t, e.before, e.release.server, "--data-dir", filepath.Join(e.directory, e.data),
		"--name", e.name, "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", e.cluster)
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
	store := newEtcd(t, debian)
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
	load.mayFail(nodeLost)
	last(all).kill()
	last(all).begin(t)
	for _, each := range all[:2] {
		each.becomes(t, "noLease")
	}
	store.start(t)
	last(all).waitReady(t)
	load.areServed(t)
	load.isOver()
	load.more(t, 300)
	until(t, "the cluster can be changed", func() bool { return all[1].createBucket(t, "second") == nil })
	all.lose(t, load, func(lost *node) { all.failOver(t, lost) })
	load.more(t, 300)
	load.finish(t)
}

// Without etcd nothing is failed over, and without the promise of the lost node nobody serves. Both end when etcd is back.
func TestEtcdIsGoneWhenANodeIsLost(t *testing.T) {
	t.Parallel()
	store := newEtcd(t, current)
	all := clusterIn(t, etcds{store}.url(), t.TempDir(), 3, 2, nil)
	all.failOverBySelf(t, "1s")
	load := startClients(t, all, allLevels...)
	load.more(t, 300)
	store.kill()
	for _, each := range all {
		each.servesBy(t, "promises")
	}
	load.more(t, 300)
	all.lose(t, load, func(lost *node) {
		for _, each := range all[:2] {
			each.becomes(t, "noLease")
		}
		store.start(t)
		all.hasFailedOver(t, lost)
	})
	load.more(t, 300)
	load.finish(t)
}
