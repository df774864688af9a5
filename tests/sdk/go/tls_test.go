package sdk

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// tlsPorts lets the system choose the ports for TLS.
var tlsPorts = []string{"--kv-tls-port=0", "--mgmt-tls-port=0"}

// certify makes a CA, and the certificates of a node and of the user. It returns their directory.
func certify(t *testing.T) string {
	t.Helper()
	path := must(binary())(t)
	pki := filepath.Join(t.TempDir(), "pki")
	for _, words := range [][]string{{"ca"}, {"node", "db1", "--host", "127.0.0.1"}, {"client", user}} {
		arguments := append(append([]string{"cert"}, words...), "--dir", pki)
		if output, err := exec.Command(path, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("kedge cert %v: %v\n%s", words, err, output)
		}
	}
	return pki
}

// certified starts a server with the certificates of a directory.
func certified(t *testing.T, pki string, flags ...string) *kedge {
	t.Helper()
	flags = append(flags, tlsPorts...)
	return ownServer(t, append(flags,
		"--tls-cert", filepath.Join(pki, "db1.pem"), "--tls-key", filepath.Join(pki, "db1-key.pem"))...)
}

func trust(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(must(os.ReadFile(file))(t)) {
		t.Fatalf("%s has no certificate", file)
	}
	return pool
}

// connectTLS connects with a password, or with the certificate of the authenticator.
func connectTLS(t *testing.T, server *kedge, ca string, authenticator gocb.Authenticator) *gocb.Cluster {
	t.Helper()
	own := must(gocb.Connect("couchbases://127.0.0.1:"+server.tlsPort, gocb.ClusterOptions{
		Authenticator:  authenticator,
		SecurityConfig: gocb.SecurityConfig{TLSRootCAs: trust(t, ca)},
		TimeoutsConfig: gocb.TimeoutsConfig{
			ConnectTimeout:   60 * time.Second,
			KVTimeout:        60 * time.Second,
			KVDurableTimeout: 60 * time.Second,
		},
	}))(t)
	t.Cleanup(func() { _ = own.Close(nil) })
	return own
}

var byPassword = gocb.PasswordAuthenticator{Username: user, Password: password}

// useOverTLS stores and reads: one document, durable ones, and many at a time.
func useOverTLS(t *testing.T, own *gocb.Cluster) {
	t.Helper()
	bucket := own.Bucket(bucketName)
	if err := bucket.WaitUntilReady(60*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	collection := bucket.DefaultCollection()
	key := newKey(t)
	must(collection.Upsert(key, "over TLS", nil))(t)
	wantContent(t, collection, key, "over TLS")
	for name, level := range levels {
		must(collection.Upsert(key+name, name, &gocb.UpsertOptions{DurabilityLevel: level}))(t)
		wantContent(t, collection, key+name, name)
	}
	writes := make([]gocb.BulkOp, 1_000)
	for n := range writes {
		writes[n] = &gocb.UpsertOp{ID: fmt.Sprintf("%s-%d", key, n), Value: n}
	}
	if err := collection.Do(writes, nil); err != nil {
		t.Fatal(err)
	}
	for n := range writes {
		if err := writes[n].(*gocb.UpsertOp).Err; err != nil {
			t.Fatal(err)
		}
	}
	wantContent(t, collection, key+"-999", 999)
}

func TestTLSAuto(t *testing.T) {
	server := ownServer(t, append(tlsPorts, "--tls=auto")...)
	ca := filepath.Join(server.directory, "data", "tls-auto-ca.pem")
	useOverTLS(t, connectTLS(t, server, ca, byPassword))
}

func TestTLSWithPassword(t *testing.T) {
	pki := certify(t)
	server := certified(t, pki)
	useOverTLS(t, connectTLS(t, server, filepath.Join(pki, "ca.pem"), byPassword))
}

func TestTLSWithClientCertificate(t *testing.T) {
	pki := certify(t)
	ca := filepath.Join(pki, "ca.pem")
	server := certified(t, pki, "--client-certs=mandatory", "--client-ca", ca)
	own := must(tls.LoadX509KeyPair(filepath.Join(pki, user+".pem"), filepath.Join(pki, user+"-key.pem")))(t)
	useOverTLS(t, connectTLS(t, server, ca, gocb.CertificateAuthenticator{ClientCertificate: &own}))
	// The certificate is no option here.
	wantUnready(t, connectTLS(t, server, ca, byPassword))
}

func TestTLSWithAnotherCA(t *testing.T) {
	server := certified(t, certify(t))
	wantUnready(t, connectTLS(t, server, filepath.Join(certify(t), "ca.pem"), byPassword))
}

// wantUnready fails if the bucket can be used. The SDK tries again until its own timeout.
func wantUnready(t *testing.T, own *gocb.Cluster) {
	t.Helper()
	if err := own.Bucket(bucketName).WaitUntilReady(2*time.Second, nil); err == nil {
		t.Fatal("the connection was accepted")
	}
}
