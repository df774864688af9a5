package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// newSlowEtcds starts a store of three members on disks that can be made slow. The returned function sets by how much longer
// syncs take.
func newSlowEtcds(t *testing.T) (etcds, func(time.Duration)) {
	t.Helper()
	wantEtcd(t)
	disk := filepath.Join(filepath.Dir(binary(t)), "examples", "faulty_disk")
	if _, err := os.Stat(disk); err != nil {
		t.Fatalf("%v: run `cargo build -p kedge-faulty-disk --example faulty_disk`, with the profile of the server", err)
	}
	ports := freePorts(t, 6)
	var made etcds
	var controls []*os.File
	for number := range 3 {
		below, at := t.TempDir(), t.TempDir()
		fifo := filepath.Join(t.TempDir(), "control")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		// Opened for both, as nobody reads yet.
		control, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { control.Close() })
		controls = append(controls, control)
		made = append(made, &etcd{
			name: fmt.Sprintf("m%d", number), directory: at, host: "127.0.0.1",
			client: ports[2*number], peer: ports[2*number+1],
			before:  []string{"unshare", "-rmpf", "--kill-child", disk, fifo, below, at},
			release: current,
		})
	}
	made.run(t)
	return made, func(time time.Duration) {
		t.Helper()
		for _, control := range controls {
			if _, err := fmt.Fprintln(control, time.Milliseconds()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Each sync of etcd takes long, for several leases: nobody loses a lease, nothing is failed over, clients are served, and the
// cluster can be changed.
func TestEtcdDisksAreSlow(t *testing.T) {
	t.Parallel()
	store, syncsTake := newSlowEtcds(t)
	all := clusterIn(t, store.url(), t.TempDir(), 3, 2, nil)
	all.failOverBySelf(t, "5s")
	load := startClients(t, all, allLevels...)
	load.more(t, 300)
	syncsTake(300 * time.Millisecond)
	began := time.Now()
	if err := all[0].createBucket(t, "slow"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Fatalf("the store has changed without a sync, within %v", took)
	}
	for time.Since(began) < 20*time.Second {
		load.more(t, 100)
		for _, status := range all[0].clusterStatus(t).Nodes {
			if status.FailedOver {
				t.Fatalf("%s was failed over", status.Name)
			}
		}
		for _, each := range all {
			if by := each.serves(t); by != "lease" {
				t.Fatalf("%s serves by %s", each.name, by)
			}
		}
	}
	syncsTake(0)
	load.more(t, 300)
	load.finish(t)
}

// serves returns the reason for which a node serves.
func (n *node) serves(t *testing.T) string {
	t.Helper()
	var status struct {
		Coordinator struct{ Lease struct{ ServesBy string } }
	}
	if err := json.Unmarshal(n.fetch(t, "/kedge/cluster/status"), &status); err != nil {
		t.Fatal(err)
	}
	return status.Coordinator.Lease.ServesBy
}
