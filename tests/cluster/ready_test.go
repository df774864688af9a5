package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
)

// readiness asks a node whether it is ready, without a password, and returns the reason why it is not.
func (n *node) readiness(t *testing.T) string {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("http://%s:%d/kedge/ready", n.host, n.mgmt))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	var document struct {
		Ready  bool
		Reason string
	}
	if err := json.NewDecoder(response.Body).Decode(&document); err != nil {
		t.Fatal(err)
	}
	if document.Ready != (response.StatusCode == http.StatusOK) || document.Ready != (document.Reason == "") {
		t.Fatalf("%s: %+v", response.Status, document)
	}
	return document.Reason
}

func (n *node) becomes(t *testing.T, reason string) {
	t.Helper()
	until(t, fmt.Sprintf("%s is not ready because of %q", n.name, reason), func() bool { return n.readiness(t) == reason })
}

// A probe of a node that was failed over sees that until the node is recovered. The others stay ready.
func TestProbesSeeWhetherANodeServesItsPart(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 3, 1, nil)
	load := startClients(t, all, allLevels...)
	for _, each := range all {
		each.becomes(t, "")
	}
	lost := last(all)
	load.mayFail(majorityLost)
	lost.kill()
	all.failOver(t, lost)
	start(t, lost)
	lost.becomes(t, "failedOver")
	if reason := all[0].readiness(t); reason != "" {
		t.Fatalf("n_0 is not ready: %s", reason)
	}
	all.recover(t, lost)
	lost.becomes(t, "")
	if missing := all[0].status(t).MissingCopies; missing != 0 {
		t.Fatalf("%d copies are missing, and the node is ready", missing)
	}
	load.isOver()
	load.finish(t)
}
