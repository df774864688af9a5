package cluster

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
)

// hasEnded returns whether the process of a node runs no more, though nobody has waited for it.
func (n *node) hasEnded(t *testing.T) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(fields, "Z")
}

// A node is stopped for longer than its lease. Its watchdog ends the process before another node takes over, so that it does
// nothing any more when it is continued.
func TestEtcdAStoppedNodeIsEndedByItsWatchdog(t *testing.T) {
	t.Parallel()
	all := clusterIn(t, inEtcd(t, debian), t.TempDir(), 3, 2, nil)
	all.failOverBySelf(t, "1s")
	load := startClients(t, all, allLevels...)
	load.more(t, 500)
	load.mayFail(nodeLost)
	stopped := last(all)
	stopped.stop(t)
	all.hasFailedOver(t, stopped)
	if !stopped.hasEnded(t) {
		t.Error("the node is failed over, and its process can go on")
	}
	load.isOver()
	stopped.goOn(t)
	load.more(t, 500)
	if !stopped.hasEnded(t) {
		t.Fatal("the process goes on")
	}
	_ = stopped.command.Wait()
	if status := stopped.command.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Errorf("its end: %v", stopped.command.ProcessState)
	}
	start(t, stopped)
	all.recover(t, stopped)
	all.caughtUp(t)
	load.more(t, 500)
	load.finish(t)
}
