package cluster

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	user       = "Administrator"
	password   = "a password of tests"
	bucketName = "default"
	vbuckets   = 64

	// Longest wait for anything that has to happen.
	patience = 60 * time.Second
)

// node is a process of the server; its ports stay the same when it is started again.
type node struct {
	name      string
	host      string
	kv, mgmt  int
	directory string
	// Words before the binary, and after `serve`.
	before, flags []string
	// The binary; that of this release if there is none.
	release   string
	command   *exec.Cmd
	firstLine chan string
}

func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("KEDGE_BIN")
	if path == "" {
		path = filepath.Join("..", "..", "target", "release", "kedge")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run `cargo build --release -p kedge`, or set KEDGE_BIN", err)
	}
	return path
}

// Below the ports that systems give to outgoing connections: another test's client must not take the port of a node that
// is down.
const (
	firstPort = 15_000
	portCount = 15_000
)

// The number of ports that were tried so far, from a place that differs from that of other runs.
var portsTried atomic.Uint32

func init() { portsTried.Store(rand.Uint32N(portCount)) }

// freePorts returns ports that nobody has now, and that no other test of this process gets.
func freePorts(t *testing.T, count int) []int {
	t.Helper()
	var ports []int
	for tries := 0; len(ports) < count; tries++ {
		if tries == portCount {
			t.Fatal("no port is free")
		}
		port := firstPort + int(portsTried.Add(1)%portCount)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		listener.Close()
		ports = append(ports, port)
	}
	return ports
}

// start runs nodes at once and returns when clients can connect to all of them.
func start(t *testing.T, all ...*node) {
	t.Helper()
	for _, node := range all {
		node.begin(t)
	}
	for _, node := range all {
		node.waitReady(t)
	}
}

func (n *node) begin(t *testing.T) {
	t.Helper()
	release := n.release
	if release == "" {
		release = binary(t)
	}
	words := append(append([]string{}, n.before...), release, "serve",
		"--data-dir", filepath.Join(n.directory, "data"),
		"--kv-port", strconv.Itoa(n.kv), "--mgmt-port", strconv.Itoa(n.mgmt), "--memcached-port", "0",
		"--listen", n.host, "--vbuckets", strconv.Itoa(vbuckets),
		"--bucket", bucketName, "--user", user, "--password", password)
	n.command = exec.Command(words[0], append(words[1:], n.flags...)...)
	if err := os.MkdirAll(n.directory, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.command.Stderr = log
	// A run that is cut off leaves no server behind.
	n.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := n.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.command.Start(); err != nil {
		t.Fatal(err)
	}
	n.firstLine = make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		n.firstLine <- line
	}()
}

func (n *node) waitReady(t *testing.T) {
	t.Helper()
	select {
	case line := <-n.firstLine:
		if !strings.HasPrefix(line, "ready ") {
			t.Fatalf("%s did not become ready: %q\n%s", n.name, line, n.log())
		}
	case <-time.After(patience):
		t.Fatalf("%s was not ready within %v\n%s", n.name, patience, n.log())
	}
}

func (n *node) logPath() string { return filepath.Join(n.directory, "stderr") }

func (n *node) log() string {
	text, _ := os.ReadFile(n.logPath())
	return string(text)
}

func (n *node) signal(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := n.command.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

// kill sends SIGKILL: no goodbye, nothing is flushed.
func (n *node) kill() {
	if n.command != nil && n.command.Process != nil && n.command.ProcessState == nil {
		_ = n.command.Process.Kill()
		_ = n.command.Wait()
	}
}

// nodes are all that a test has.
type nodes []*node

// one is a server that is no part of a cluster.
func one(t *testing.T) nodes {
	t.Helper()
	ports := freePorts(t, 2)
	single := &node{name: "n_0", host: "127.0.0.1", kv: ports[0], mgmt: ports[1], directory: t.TempDir()}
	all := nodes{single}
	all.run(t)
	return all
}

// run starts all nodes and ends them with the test.
func (all nodes) run(t *testing.T) {
	t.Helper()
	all.endWith(t)
	start(t, all...)
}

// endWith ends all nodes with the test.
func (all nodes) endWith(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		for _, node := range all {
			node.kill()
		}
		if t.Failed() {
			for _, node := range all {
				t.Logf("%s said:\n%s", node.name, node.log())
			}
		}
	})
}

// connectionString names all nodes, so that any may be down.
func (all nodes) connectionString() string {
	hosts := make([]string, len(all))
	for index, node := range all {
		hosts[index] = fmt.Sprintf("%s:%d", node.host, node.kv)
	}
	return "couchbase://" + strings.Join(hosts, ",")
}

// until asks again and again until the condition is true.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// collections returns the ids of a scope's collections, once the node knows of as many as are wanted.
func (n *node) collections(t *testing.T, scope string, wanted int) map[string]uint32 {
	t.Helper()
	url := fmt.Sprintf("http://%s:%d/pools/default/buckets/%s/scopes", n.host, n.mgmt, bucketName)
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth(user, password)
	ids := map[string]uint32{}
	until(t, "the node knows of the collections", func() bool {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var manifest struct {
			Scopes []struct {
				Name        string
				Collections []struct{ Name, UID string }
			}
		}
		if err := json.NewDecoder(response.Body).Decode(&manifest); err != nil {
			t.Fatal(err)
		}
		for _, it := range manifest.Scopes {
			for _, collection := range it.Collections {
				id, err := strconv.ParseUint(collection.UID, 16, 32)
				if err != nil {
					t.Fatal(err)
				}
				if it.Name == scope {
					ids[collection.Name] = uint32(id)
				}
			}
		}
		return len(ids) == wanted
	})
	return ids
}
