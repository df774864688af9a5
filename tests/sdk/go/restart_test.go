package sdk

import (
	"fmt"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

func openOwn(t *testing.T, server *kedge) *gocb.Collection {
	t.Helper()
	own, err := connect(server, user, password)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = own.Close(nil) })
	bucket := own.Bucket(bucketName)
	if err := bucket.WaitUntilReady(60*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	return bucket.DefaultCollection()
}

func startAgain(t *testing.T, server *kedge, collection *gocb.Collection, key string) {
	t.Helper()
	if err := server.start(); err != nil {
		t.Fatal(err)
	}
	until(t, "the client reconnects", func() bool {
		_, err := collection.Get(key, &gocb.GetOptions{Timeout: time.Second})
		return err == nil
	})
}

func TestOrderlyRestartKeepsEverything(t *testing.T) {
	server := ownServer(t)
	collection := openOwn(t, server)
	const count = 1_000
	var cas gocb.Cas
	for n := range count {
		cas = must(collection.Upsert(fmt.Sprintf("key-%d", n), n, nil))(t).Cas()
	}

	server.terminate(t)
	startAgain(t, server, collection, "key-0")

	for n := range count {
		wantContent(t, collection, fmt.Sprintf("key-%d", n), n)
	}
	last := fmt.Sprintf("key-%d", count-1)
	if kept := must(collection.Get(last, nil))(t).Cas(); kept != cas {
		t.Fatalf("CAS %v became %v", cas, kept)
	}
	if next := must(collection.Upsert(last, 0, nil))(t).Cas(); next <= cas {
		t.Fatalf("CAS went from %v to %v", cas, next)
	}
}

func TestAcknowledgedDurableWritesSurviveAKill(t *testing.T) {
	for _, name := range []string{"MajorityAndPersistOnMaster", "PersistToMajority"} {
		t.Run(name, func(t *testing.T) {
			level := levels[name]
			server := ownServer(t)
			collection := openOwn(t, server)
			const count = 200
			for n := range count {
				key := fmt.Sprintf("key-%d", n)
				must(collection.Upsert(key, n, &gocb.UpsertOptions{DurabilityLevel: level}))(t)
			}
			must(collection.Remove("key-0", &gocb.RemoveOptions{DurabilityLevel: level}))(t)

			server.kill()
			startAgain(t, server, collection, "key-1")

			for n := 1; n < count; n++ {
				wantContent(t, collection, fmt.Sprintf("key-%d", n), n)
			}
			_, err := collection.Get("key-0", nil)
			wantError(t, err, gocb.ErrDocumentNotFound)
			must(collection.Upsert("key-0", 0, &gocb.UpsertOptions{DurabilityLevel: level}))(t)
		})
	}
}
