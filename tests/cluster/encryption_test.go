package cluster

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// certify makes a CA and a certificate for each node, and returns their directory.
func (all nodes) certify(t *testing.T) string {
	t.Helper()
	pki := filepath.Join(t.TempDir(), "pki")
	run := func(words ...string) {
		t.Helper()
		words = append(append([]string{"cert"}, words...), "--dir", pki)
		if output, err := exec.Command(binary(t), words...).CombinedOutput(); err != nil {
			t.Fatalf("kedge %s: %v: %s", strings.Join(words, " "), err, output)
		}
	}
	run("ca")
	for _, each := range all {
		run("node", each.name, "--host", each.host)
	}
	return pki
}

// tlsMember is a node, with its flags without TLS and those by which it serves TLS.
type tlsMember struct {
	*node
	plain, tls []string
}

// tlsMembers gives each node a certificate, and ports of TLS.
func (all nodes) tlsMembers(t *testing.T) (members []tlsMember) {
	t.Helper()
	pki := all.certify(t)
	for _, each := range all {
		ports := freePorts(t, 2)
		file := func(end string) string { return filepath.Join(pki, each.name+end+".pem") }
		members = append(members, tlsMember{each, each.flags, []string{
			"--tls-cert", file(""), "--tls-key", file("-key"),
			"--kv-tls-port", strconv.Itoa(ports[0]), "--mgmt-tls-port", strconv.Itoa(ports[1]),
		}})
	}
	return members
}

// restartWith starts a node again with another encryption.
func (m tlsMember) restartWith(t *testing.T, mode string, servesTLS bool) {
	t.Helper()
	m.flags = append(append([]string{}, m.plain...), "--cluster-encryption", mode)
	if servesTLS {
		m.flags = append(m.flags, m.tls...)
	}
	m.restart(t)
}

// memberEncryption is what the status says of a node.
type memberEncryption struct {
	Name, Encryption       string
	Up                     bool
	KvTLSPort, MgmtTLSPort int
}

func (n *node) encryption(t *testing.T) []memberEncryption {
	t.Helper()
	var status struct{ Nodes []memberEncryption }
	n.readStatus(t, &status)
	return status.Nodes
}

// areEncrypted waits until all nodes reach each other, and have that encryption.
func (all nodes) areEncrypted(t *testing.T, mode string, servesTLS bool) {
	t.Helper()
	for _, each := range all {
		until(t, each.name+" reaches all nodes by "+mode, func() bool {
			for _, member := range each.encryption(t) {
				hasPorts := member.KvTLSPort != 0 && member.MgmtTLSPort != 0
				if !member.Up || member.Encryption != mode || hasPorts != servesTLS {
					return false
				}
			}
			return true
		})
	}
}

// The nodes of a running cluster encrypt what they send each other, and cease to, one node after the other. Clients see no error.
func TestEncryptionChangesWithoutErrors(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 3, 2, nil)
	members := all.tlsMembers(t)
	load := startClients(t, all, append([]gocb.DurabilityLevel{gocb.DurabilityLevelNone}, allLevels...)...)
	load.more(t, 500)
	all.areEncrypted(t, "off", false)
	for _, step := range []struct {
		mode      string
		servesTLS bool
	}{{"off", true}, {"tls", true}, {"mutual_tls", true}, {"tls", true}, {"off", true}, {"off", false}} {
		t.Logf("the nodes get the encryption %s", step.mode)
		for _, member := range members {
			all.drain(t, member.node, load)
			member.restartWith(t, step.mode, step.servesTLS)
			all.takeBack(t, member.node, load)
		}
		all.areEncrypted(t, step.mode, step.servesTLS)
	}
	load.finish(t)
}

// A node of which the others have the release before, whose map has no ports of TLS, serves TLS to clients and reaches the others
// without it. With TLS it reaches nobody, says why, and goes back. The map has the ports as soon as the last node has the newer
// release, without another restart. Clients see no error.
func TestEncryptionNeedsTheNewerReleaseOnAllNodes(t *testing.T) {
	t.Parallel()
	all := clusterOfRelease(t, olderRelease(t))
	members := all.tlsMembers(t)
	load := startClients(t, all, allLevels...)
	load.more(t, 200)
	first := members[0]
	all.drain(t, first.node, load)
	first.release = ""
	first.restartWith(t, "tls", true)
	until(t, "it says why it reaches nobody", func() bool {
		return strings.Contains(first.log(), "all nodes of a cluster need the same cluster_encryption")
	})
	load.more(t, 200)
	first.restartWith(t, "off", true)
	all.takeBack(t, first.node, load)
	for _, member := range members[1:] {
		all.drain(t, member.node, load)
		member.release = ""
		member.restartWith(t, "off", true)
		all.takeBack(t, member.node, load)
	}
	until(t, "the level is raised", func() bool { return all[0].compatibility(t).Level == 2 })
	all.areEncrypted(t, "off", true)
	all.drain(t, first.node, load)
	first.restartWith(t, "tls", true)
	all.takeBack(t, first.node, load)
	until(t, "it reaches all by TLS", func() bool {
		for _, member := range first.encryption(t) {
			if !member.Up {
				return false
			}
		}
		return first.encryption(t)[0].Encryption == "tls"
	})
	load.finish(t)
}
