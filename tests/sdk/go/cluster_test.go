package sdk

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

var nodeLine = regexp.MustCompile(`^ready kv=\S+:(\d+) mgmt=\S+:(\d+) .*node=n_(\d+) pid=(\d+)$`)

// nodes is what `kedge cluster-run` started: n_0, n_1 and so on, on free ports. Each is KV port, management port, process.
type nodes [][3]string

// newNodes starts a cluster in which all other nodes are replicas.
func newNodes(t *testing.T, count int) nodes {
	t.Helper()
	path := must(binary())(t)
	directory := t.TempDir()
	command := exec.Command(path, "cluster-run", "--nodes", fmt.Sprint(count), "--replicas", fmt.Sprint(count-1),
		"--data-dir", filepath.Join(directory, "data"), "--kv-port", "0", "--mgmt-port", "0", "--vbuckets", "64",
		"--bucket", bucketName, "--user", user, "--password", password)
	log := must(os.Create(filepath.Join(directory, "stderr")))(t)
	defer log.Close()
	command.Stderr = log
	stdout := must(command.StdoutPipe())(t)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	lines := make(chan string)
	go func() {
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
		close(lines)
	}()
	all := make(nodes, count)
	for {
		select {
		case line := <-lines:
			if strings.HasPrefix(line, "cluster ready ") {
				go func() {
					for range lines {
					}
				}()
				return all
			}
			match := nodeLine.FindStringSubmatch(line)
			if match == nil {
				text, _ := os.ReadFile(log.Name())
				t.Fatalf("the cluster did not become ready: %q\n%s", line, text)
			}
			all[must(strconv.Atoi(match[3]))(t)] = [3]string{match[1], match[2], match[4]}
		case <-time.After(readyTimeout):
			t.Fatalf("the cluster was not ready within %v", readyTimeout)
		}
	}
}

func (n nodes) open(t *testing.T) *gocb.Collection {
	t.Helper()
	_, collection := n.connect(t)
	return collection
}

func (n nodes) connectionString() string {
	hosts := make([]string, len(n))
	for index, node := range n {
		hosts[index] = "127.0.0.1:" + node[0]
	}
	return "couchbase://" + strings.Join(hosts, ",")
}

func (n nodes) connect(t *testing.T) (*gocb.Cluster, *gocb.Collection) {
	t.Helper()
	cluster := must(connectTo(n.connectionString(), user, password))(t)
	t.Cleanup(func() { _ = cluster.Close(nil) })
	bucket := cluster.Bucket(bucketName)
	if err := bucket.WaitUntilReady(60*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	return cluster, bucket.DefaultCollection()
}

// failOver kills a node and promotes its replicas.
func (n nodes) failOver(t *testing.T, node int) {
	t.Helper()
	if output, err := exec.Command("kill", "-KILL", n[node][2]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	path := must(binary())(t)
	output, err := exec.Command(path, "cluster", "failover", fmt.Sprintf("n_%d", node),
		"-U", "http://127.0.0.1:"+n[0][1], "-u", user, "-P", password).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

func TestDurableWritesAndReplicaReadsInACluster(t *testing.T) {
	for _, count := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d nodes", count), func(t *testing.T) {
			collection := newNodes(t, count).open(t)
			for name, level := range levels {
				for n := range 60 {
					key := fmt.Sprintf("%s-%d", name, n)
					must(collection.Upsert(key, n, &gocb.UpsertOptions{DurabilityLevel: level}))(t)
				}
				for n := range 20 {
					key := fmt.Sprintf("%s-%d", name, n)
					until(t, key+" is everywhere", func() bool { return hasAll(t, collection, key, n, count) })
					var content int
					if err := must(collection.GetAnyReplica(key, nil))(t).Content(&content); err != nil || content != n {
						t.Fatalf("%s: %d, %v", key, content, err)
					}
				}
			}
			pathsOnReplicas(t, collection, count)
			// Each node scans its vBuckets.
			result := must(collection.Scan(gocb.RangeScan{}, &gocb.ScanOptions{IDsOnly: true}))(t)
			found := map[string]bool{}
			for item := result.Next(); item != nil; item = result.Next() {
				found[item.ID()] = true
			}
			if wanted := 60*len(levels) + 1; result.Err() != nil || len(found) != wanted {
				t.Fatalf("%d keys of %d, %v", len(found), wanted, result.Err())
			}
			// The SDK waits as long as it may for a replica that has it.
			_, err := collection.GetAnyReplica("nothing", &gocb.GetAnyReplicaOptions{Timeout: time.Second})
			wantError(t, err, gocb.ErrDocumentUnretrievable)
		})
	}
}

func pathsOnReplicas(t *testing.T, collection *gocb.Collection, copies int) {
	t.Helper()
	must(collection.Upsert("paths", map[string]int{"n": 1}, nil))(t)
	must(collection.MutateIn("paths", []gocb.MutateInSpec{
		gocb.UpsertSpec("_sys.n", 2, &gocb.UpsertSpecOptions{IsXattr: true, CreatePath: true}),
		gocb.IncrementSpec("n", 1, nil),
	}, &gocb.MutateInOptions{DurabilityLevel: gocb.DurabilityLevelMajority}))(t)
	paths := []gocb.LookupInSpec{
		gocb.GetSpec("_sys.n", &gocb.GetSpecOptions{IsXattr: true}), gocb.GetSpec("n", nil),
	}
	isChanged := func(found *gocb.LookupInReplicaResult) bool {
		var attribute, body int
		err := errors.Join(found.ContentAt(0, &attribute), found.ContentAt(1, &body))
		return err == nil && attribute == 2 && body == 2
	}
	until(t, "the paths are on all replicas", func() bool {
		options := &gocb.LookupInAllReplicaOptions{Timeout: time.Second}
		stream := must(collection.LookupInAllReplicas("paths", paths, options))(t)
		found, actives := 0, 0
		for each := stream.Next(); each != nil; each = stream.Next() {
			if isChanged(each) {
				found++
			}
			if !each.IsReplica() {
				actives++
			}
		}
		return found == copies && actives == 1
	})
	if !isChanged(must(collection.LookupInAnyReplica("paths", paths, nil))(t)) {
		t.Fatal("a replica has other paths")
	}
}

// hasAll says whether the active and all replicas have the document: a replica hears of the commit after the client does.
func hasAll(t *testing.T, collection *gocb.Collection, key string, wanted, copies int) bool {
	t.Helper()
	// The SDK waits for a copy that is not there yet until the time is over, and asks for it no more.
	stream := must(collection.GetAllReplicas(key, &gocb.GetAllReplicaOptions{Timeout: time.Second}))(t)
	found, actives := 0, 0
	for each := stream.Next(); each != nil; each = stream.Next() {
		var content int
		if each.Content(&content) == nil && content == wanted {
			found++
		}
		if !each.IsReplica() {
			actives++
		}
	}
	return found == copies && actives == 1
}

func TestTheClientGoesOnThroughAFailover(t *testing.T) {
	const count = 200
	all := newNodes(t, 3)
	collection := all.open(t)
	key := func(n int) string { return fmt.Sprintf("key-%d", n) }
	for n := range count {
		must(collection.Upsert(key(n), n, &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelMajority}))(t)
	}
	all.failOver(t, 2)
	for n := range count {
		until(t, key(n)+" is found at another node", func() bool {
			var content int
			found, err := collection.Get(key(n), &gocb.GetOptions{Timeout: time.Second})
			return err == nil && found.Content(&content) == nil && content == n
		})
	}
	for _, level := range levels {
		for n := range 50 {
			must(collection.Upsert(key(n), -n, &gocb.UpsertOptions{DurabilityLevel: level}))(t)
			wantContent(t, collection, key(n), -n)
		}
	}
}
