package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// get asks management for a document. The caller closes the body.
func (n *node) get(t *testing.T, path string) *http.Response {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s:%d%s", n.host, n.mgmt, path), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth(user, password)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return response
}

// fetch returns the body of a document of management.
func (n *node) fetch(t *testing.T, path string) []byte {
	t.Helper()
	response := n.get(t, path)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", path, response.Status, err, body)
	}
	return body
}

// reportsHealth waits until a node gives the last node of a cluster that health in each list of nodes.
func (n *node) reportsHealth(t *testing.T, count int, health string) {
	t.Helper()
	for _, path := range []string{"/pools/default", "/pools/default/buckets/" + bucketName} {
		until(t, path+" gives the health "+health, func() bool {
			var document struct{ Nodes []struct{ Status string } }
			if err := json.Unmarshal(n.fetch(t, path), &document); err != nil {
				t.Fatal(err)
			}
			if len(document.Nodes) != count {
				t.Fatalf("%s: %d nodes", path, len(document.Nodes))
			}
			return document.Nodes[count-1].Status == health
		})
	}
}

// reportsMetrics waits until a node's metrics say whether the node n_2 answers and copies are missing.
func (n *node) reportsMetrics(t *testing.T, up bool) {
	t.Helper()
	until(t, fmt.Sprintf("the metrics say up=%v", up), func() bool {
		value := map[string]string{}
		for _, line := range strings.Split(string(n.fetch(t, "/metrics")), "\n") {
			if name, number, ok := strings.Cut(line, " "); ok && name != "#" {
				value[name] = number
			}
		}
		missing := value[`kedge_cluster_missing_copies{bucket="default"}`]
		without := value[`kedge_cluster_vbuckets_without_active{bucket="default"}`]
		if missing == "" || without == "" {
			t.Fatalf("no metrics of copies: %v", value)
		}
		whole := missing == "0" && without == "0"
		return value[`kedge_cluster_node_up{node="n_2"}`] == map[bool]string{true: "1", false: "0"}[up] && whole == up
	})
}

// statusCode is the exit code of `kedge cluster status`.
func (n *node) statusCode(t *testing.T) int {
	t.Helper()
	err := n.tool(t, "status")
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// A node whose cable is cut is reported as one that was killed: by management, metrics and the exit code. Nobody closes its
// connections.
func TestACutNodeIsReportedMissingEverywhere(t *testing.T) {
	t.Parallel()
	net := newNetwork(t)
	all := clusterOf(t, 3, 1, net)
	reported := func(up bool) {
		t.Helper()
		began := time.Now()
		health, code := "healthy", 0
		if !up {
			health, code = "unhealthy", 1
		}
		for _, asked := range all[:2] {
			asked.reportsHealth(t, len(all), health)
			t.Logf("%s: %s after %v", asked.name, health, time.Since(began))
			asked.reportsMetrics(t, up)
			until(t, fmt.Sprintf("the exit code is %d", code), func() bool { return asked.statusCode(t) == code })
		}
		t.Logf("n_2 is reported as up=%v after %v", up, time.Since(began))
	}
	reported(true)
	net.cut(2)
	reported(false)
	net.mend(2)
	reported(true)
}
