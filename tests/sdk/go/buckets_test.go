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

func TestSettingsAreWhatWasAskedFor(t *testing.T) {
	manager, created := newBucket(t, false)
	asked := created.BucketSettings
	check := func() {
		t.Helper()
		got := must(manager.GetBucket(asked.Name, nil))(t)
		if got.RAMQuotaMB != asked.RAMQuotaMB || got.FlushEnabled != asked.FlushEnabled ||
			got.NumReplicas != asked.NumReplicas || got.EvictionPolicy != asked.EvictionPolicy ||
			got.MaxExpiry != asked.MaxExpiry || got.CompressionMode != asked.CompressionMode ||
			got.MinimumDurabilityLevel != asked.MinimumDurabilityLevel {
			t.Fatalf("%+v, not %+v", got, asked)
		}
	}
	if err := manager.DropBucket(asked.Name, nil); err != nil {
		t.Fatal(err)
	}
	asked.RAMQuotaMB = 101
	asked.NumReplicas = 2
	asked.MaxExpiry = time.Hour
	asked.CompressionMode = gocb.CompressionModeActive
	asked.EvictionPolicy = gocb.EvictionPolicyTypeFull
	asked.MinimumDurabilityLevel = gocb.DurabilityLevelMajority
	err := manager.CreateBucket(gocb.CreateBucketSettings{
		BucketSettings:         asked,
		ConflictResolutionType: gocb.ConflictResolutionTypeTimestamp,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	check()
	asked.RAMQuotaMB = 102
	asked.FlushEnabled = true
	asked.NumReplicas = 1
	asked.MaxExpiry = 2 * time.Hour
	asked.CompressionMode = gocb.CompressionModeOff
	asked.EvictionPolicy = gocb.EvictionPolicyTypeValueOnly
	asked.MinimumDurabilityLevel = gocb.DurabilityLevelPersistToMajority
	if err := manager.UpdateBucket(asked, nil); err != nil {
		t.Fatal(err)
	}
	check()
	wrong := asked
	wrong.NumReplicas = 4
	if err := manager.UpdateBucket(wrong, nil); err == nil {
		t.Fatal("four replicas are too many")
	}
	check()
}
