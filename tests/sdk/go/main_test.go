package sdk

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// What all tests but those that end a server share.
var (
	shared     *kedge
	cluster    *gocb.Cluster
	collection *gocb.Collection
)

func TestMain(m *testing.M) {
	if arguments, isChild := os.LookupEnv(stageVariable); isChild {
		fmt.Fprintln(os.Stderr, stageAndWait(arguments))
		os.Exit(1)
	}
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (int, error) {
	server, err := newServer()
	if err != nil {
		return 1, err
	}
	defer server.remove()
	shared = server
	if cluster, err = connect(server, user, password); err != nil {
		return 1, err
	}
	defer cluster.Close(nil)
	bucket := cluster.Bucket(bucketName)
	if err := bucket.WaitUntilReady(60*time.Second, nil); err != nil {
		return 1, fmt.Errorf("the bucket did not become ready: %w\n%s", err, server.log())
	}
	collection = bucket.DefaultCollection()
	return m.Run(), nil
}

func connect(server *kedge, user, password string) (*gocb.Cluster, error) {
	return connectTo(server.connectionString(), user, password)
}

func connectTo(connectionString, user, password string) (*gocb.Cluster, error) {
	return gocb.Connect(connectionString, gocb.ClusterOptions{
		Username: user,
		Password: password,
		TimeoutsConfig: gocb.TimeoutsConfig{
			ConnectTimeout:   60 * time.Second,
			KVTimeout:        60 * time.Second,
			KVDurableTimeout: 60 * time.Second,
		},
	})
}

// failFast returns an error where the SDK would try again until its timeout.
type failFast struct{}

func (failFast) RetryAfter(gocb.RetryRequest, gocb.RetryReason) gocb.RetryAction {
	return &gocb.NoRetryRetryAction{}
}

func newKey(t *testing.T) string {
	t.Helper()
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		t.Fatal(err)
	}
	return t.Name() + "-" + hex.EncodeToString(random[:])
}

// must returns a function that gives the value, or fails the test with the error: `must(call())(t)`.
func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func wantError(t *testing.T, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("got %v, wanted %v", err, wanted)
	}
}

func wantContent[T any](t *testing.T, collection *gocb.Collection, key string, wanted T) {
	t.Helper()
	var content T
	if err := must(collection.Get(key, nil))(t).Content(&content); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(content, wanted) {
		t.Fatalf("%s: got %v, wanted %v", key, content, wanted)
	}
}

// until asks again and again until the condition is true.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	const limit = 60 * time.Second
	for end := time.Now().Add(limit); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

func untilGone(t *testing.T, key string) {
	t.Helper()
	until(t, key+" is gone", func() bool { return !must(collection.Exists(key, nil))(t).Exists() })
}
