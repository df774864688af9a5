package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// The size of a small disk. A node needs about a third of it at first.
const diskMiB = 128

// smallDisk mounts an empty file system for the data of a node that has not been started.
func (n *node) smallDisk(t *testing.T) {
	t.Helper()
	data := filepath.Join(n.directory, "data")
	if err := os.MkdirAll(data, 0o755); err != nil {
		t.Fatal(err)
	}
	mount := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", diskMiB), "tmpfs", data)
	if output, err := mount.CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v: %s", err, output)
		}
		t.Skipf("SKIPPED: this wants to be root and to mount a file system: %v: %s", err, output)
	}
	t.Cleanup(func() {
		n.kill()
		if output, err := exec.Command("umount", data).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, output)
		}
	})
}

// fill fills the disk of a node with a file, and returns its path.
func (n *node) fill(t *testing.T) string {
	t.Helper()
	path := filepath.Join(n.directory, "data", "ballast")
	if err := os.WriteFile(path, make([]byte, diskMiB<<20), 0o644); err == nil {
		t.Fatal("the disk is larger")
	}
	return path
}

// hasMetric says whether a node's metrics have this line.
func (n *node) hasMetric(t *testing.T, line string) bool {
	t.Helper()
	return slices.Contains(strings.Split(string(n.fetch(t, "/metrics")), "\n"), line)
}

// refusesFor writes large documents until the SDK has repeated a write until its timeout for this reason.
func (c *clients) refusesFor(t *testing.T, reason gocb.RetryReason) {
	t.Helper()
	large := strings.Repeat("x", 512<<10)
	number := 0
	until(t, "a write is refused", func() bool {
		number++
		// One for each vBucket, about, so that other disks have room for all.
		key := fmt.Sprintf("large-%d", number%vbuckets)
		_, err := c.collection.Upsert(key, large, &gocb.UpsertOptions{Timeout: time.Second})
		timeout := new(gocb.TimeoutError)
		if err != nil && !errors.As(err, &timeout) {
			t.Fatal(err)
		}
		return err != nil && slices.Contains(timeout.RetryReasons, reason)
	})
}

// The disk of a node is full. It refuses writes for as long as that lasts, and serves reads. The others go on, and nobody fails it
// over, because the disk is no trouble that a failover ends. When there is room, nothing is lost.
func TestEtcdADiskIsFull(t *testing.T) {
	t.Parallel()
	store, directory := inEtcd(t, current), t.TempDir()
	var all nodes
	for number := range 3 {
		all = append(all, newMember(t, store, directory, number, nil))
	}
	full := last(all)
	full.smallDisk(t)
	all.form(t, 2)
	all.failOverBySelf(t, "1s")
	load := startClients(t, all, allLevels...)
	load.more(t, 300)

	// The SDK repeats what is refused for a while, and gives up in the end. What waits for the copy on the full disk is
	// ambiguous.
	load.mayFail([]error{gocb.ErrTimeout, gocb.ErrDurabilityAmbiguous})
	ballast := full.fill(t)
	load.refusesFor(t, gocb.KVTemporaryFailureRetryReason)
	isFull := func(is int) bool {
		return full.hasMetric(t, fmt.Sprintf(`kedge_bucket_disk_full{bucket="default"} %d.0`, is))
	}
	until(t, "the metric says that the disk is full", func() bool { return isFull(1) })
	// Most clients wait for what is refused.
	load.more(t, 30)
	for number := range contested {
		if _, err := load.get(contestedKey(number)); err != nil {
			t.Errorf("%s cannot be read: %v", contestedKey(number), err)
		}
	}
	full.renews(t)
	all.hasNoFailover(t)

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	load.areServed(t)
	load.isOver()
	until(t, "the metric says that there is room", func() bool { return isFull(0) })
	load.more(t, 300)
	all.caughtUp(t)
	all.hasNoFailover(t)

	// Its disk has all that it has acknowledged, and its copies can take over.
	if err := all[0].tool(t, "auto-failover", "--disable"); err != nil {
		t.Fatal(err)
	}
	load.mayFail(nodeLost)
	full.kill()
	start(t, full)
	load.areServed(t)
	load.isOver()
	load.mayFail(nodeLost)
	all[0].kill()
	until(t, "it is failed over", func() bool { return all[1].tool(t, "failover", all[0].name) == nil })
	load.isOver()
	load.more(t, 300)
	load.finish(t)
}
