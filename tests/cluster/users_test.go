package cluster

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// user runs a command of `kedge user` at a node.
func (n *node) user(t *testing.T, words ...string) error {
	t.Helper()
	words = append(append([]string{"user"}, words...),
		"-U", fmt.Sprintf("couchbase://%s:%d", n.host, n.kv), "-u", user, "-P", password)
	output, err := exec.Command(binary(t), words...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kedge %s: %w: %s", strings.Join(words, " "), err, output)
	}
	return nil
}

// admits returns whether a user can log in at a node.
func (n *node) admits(name, password string) bool {
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s:%d/whoami", n.host, n.mgmt), nil)
	if err != nil {
		return false
	}
	request.SetBasicAuth(name, password)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode == http.StatusOK
}

func (all nodes) admit(t *testing.T, name, password string, want bool) {
	t.Helper()
	for _, each := range all {
		if each.admits(name, password) != want {
			t.Fatalf("%s admits %s: %v", each.name, name, !want)
		}
	}
}

// Users are the same on all nodes. They log in while etcd is gone, and change when it is back; a restored backup of etcd does
// not bring removed ones back.
func TestEtcdHasTheUsers(t *testing.T) {
	t.Parallel()
	store := newEtcd(t, current)
	all := clusterIn(t, etcds{store}.url(), t.TempDir(), 3, 1, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(all[0].user(t, "add", "ada", "--new-password", "lovelace", "--roles", "ro_admin"))
	all.admit(t, "ada", "lovelace", true)
	must(all[1].user(t, "passwd", "ada", "--new-password", "byron's daughter"))
	all.admit(t, "ada", "lovelace", false)
	all.admit(t, "ada", "byron's daughter", true)

	store.kill()
	data := filepath.Join(store.directory, "data")
	must(os.CopyFS(data+".backup", os.DirFS(data)))
	err := all[2].user(t, "remove", "ada")
	if err == nil || !strings.Contains(err.Error(), "coordination store") {
		t.Fatalf("the refusal does not name the store: %v", err)
	}
	last(all).kill()
	last(all).begin(t)
	until(t, "a node that starts meanwhile admits users", func() bool { return last(all).admits("ada", "byron's daughter") })
	all.admit(t, "ada", "byron's daughter", true)
	store.start(t)
	last(all).waitReady(t)
	until(t, "users can be changed", func() bool { return all[2].user(t, "remove", "ada") == nil })
	must(all[0].user(t, "add", "bob", "--new-password", "a secret", "--roles", "ro_admin"))
	all.admit(t, "ada", "byron's daughter", false)
	all.admit(t, "bob", "a secret", true)

	store.kill()
	must(os.RemoveAll(data))
	must(os.Rename(data+".backup", data))
	store.start(t)
	until(t, "users can be changed", func() bool {
		return all[1].user(t, "add", "eve", "--new-password", "a secret", "--roles", "ro_admin") == nil
	})
	until(t, "all nodes have the newest users", func() bool {
		for _, each := range all {
			if each.admits("ada", "byron's daughter") || !each.admits("bob", "a secret") || !each.admits("eve", "a secret") {
				return false
			}
		}
		return true
	})
}
