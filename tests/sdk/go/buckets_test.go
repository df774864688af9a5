package sdk

import (
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

func newBucket(t *testing.T, flush bool) (*gocb.BucketManager, gocb.CreateBucketSettings) {
	t.Helper()
	manager := cluster.Buckets()
	key := newKey(t)
	settings := gocb.CreateBucketSettings{BucketSettings: gocb.BucketSettings{
		Name:         "b-" + key[strings.LastIndex(key, "-")+1:],
		RAMQuotaMB:   100,
		FlushEnabled: flush,
		BucketType:   gocb.CouchbaseBucketType,
	}}
	if err := manager.CreateBucket(settings, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.DropBucket(settings.Name, nil) })
	return manager, settings
}

func TestCreateUseFlushDrop(t *testing.T) {
	manager, settings := newBucket(t, true)
	wantError(t, manager.CreateBucket(settings, nil), gocb.ErrBucketExists)
	created := must(manager.GetBucket(settings.Name, nil))(t)
	if created.RAMQuotaMB != 100 || !created.FlushEnabled {
		t.Fatalf("%+v", created)
	}
	if _, listed := must(manager.GetAllBuckets(nil))(t)[settings.Name]; !listed {
		t.Fatal("not in the list")
	}

	bucket := cluster.Bucket(settings.Name)
	if err := bucket.WaitUntilReady(60*time.Second, nil); err != nil {
		t.Fatal(err)
	}
	other := bucket.DefaultCollection()
	must(other.Upsert("key", 1, nil))(t)
	if must(collection.Exists("key", nil))(t).Exists() {
		t.Fatal("a document shows in another bucket")
	}
	if err := manager.FlushBucket(settings.Name, nil); err != nil {
		t.Fatal(err)
	}
	until(t, "the flush empties the bucket", func() bool { return !must(other.Exists("key", nil))(t).Exists() })
	must(other.Upsert("key", 2, nil))(t)
	wantContent(t, other, "key", 2)

	if err := manager.DropBucket(settings.Name, nil); err != nil {
		t.Fatal(err)
	}
	_, err := manager.GetBucket(settings.Name, nil)
	wantError(t, err, gocb.ErrBucketNotFound)
	wantError(t, manager.DropBucket(settings.Name, nil), gocb.ErrBucketNotFound)
}

func TestFlushMustBeEnabled(t *testing.T) {
	manager, settings := newBucket(t, false)
	wantError(t, manager.FlushBucket(settings.Name, nil), gocb.ErrBucketNotFlushable)
	settings.FlushEnabled = true
	settings.RAMQuotaMB = 128
	if err := manager.UpdateBucket(settings.BucketSettings, nil); err != nil {
		t.Fatal(err)
	}
	updated := must(manager.GetBucket(settings.Name, nil))(t)
	if !updated.FlushEnabled || updated.RAMQuotaMB != 128 {
		t.Fatalf("%+v", updated)
	}
	if err := manager.FlushBucket(settings.Name, nil); err != nil {
		t.Fatal(err)
	}
}
