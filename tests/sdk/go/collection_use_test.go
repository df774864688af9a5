package sdk

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// What is done with documents of named collections, on one node and on two.
func TestUseOfCollections(t *testing.T) {
	onOneNodeAndOnTwo(t, func(t *testing.T, cluster *gocb.Cluster, _ *gocb.Collection) {
		bucket := cluster.Bucket(bucketName)
		manager, scope := newScope(t, bucket)
		a := newCollection(t, bucket, manager, scope, "a")
		b := newCollection(t, bucket, manager, scope, "b")
		t.Run("time to live", func(t *testing.T) { documentsLiveAsLong(t, bucket, manager, scope) })
		t.Run("scans", func(t *testing.T) { scansOfOne(t, a, b) })
		t.Run("paths", func(t *testing.T) { pathsOfOne(t, a, b) })
		t.Run("bulk", func(t *testing.T) { tenThousand(t, a) })
	})
}

func documentsLiveAsLong(t *testing.T, bucket *gocb.Bucket, manager *gocb.CollectionManagerV2, scope string) {
	const longest = 10 * time.Minute
	settings := &gocb.CreateCollectionSettings{MaxExpiry: longest}
	if err := manager.CreateCollection(scope, "ttl", settings, nil); err != nil {
		t.Fatal(err)
	}
	documents := bucket.Scope(scope).Collection("ttl")
	expires := func() time.Time {
		return must(documents.Get("key", &gocb.GetOptions{WithExpiry: true}))(t).ExpiryTime()
	}
	for _, asked := range []time.Duration{0, 20 * 24 * time.Hour} {
		before := time.Now().Truncate(time.Second)
		must(documents.Upsert("key", 1, &gocb.UpsertOptions{Expiry: asked}))(t)
		after := time.Now().Add(time.Second)
		if found := expires(); found.Before(before.Add(longest)) || found.After(after.Add(longest)) {
			t.Fatalf("%v became %v, written at %v", asked, found, before)
		}
	}
	must(documents.Upsert("key", 1, &gocb.UpsertOptions{Expiry: time.Minute}))(t)
	if found := expires(); found.After(time.Now().Add(time.Minute + time.Second)) {
		t.Fatalf("a minute became %v", found)
	}
}

func scansOfOne(t *testing.T, a, b *gocb.Collection) {
	prefix, keys := scanned(t, a, 20)
	must(b.Upsert(prefix+"b", map[string]int{"n": 1}, nil))(t)
	someOfThem := gocb.RangeScan{
		From: &gocb.ScanTerm{Term: keys[5]}, To: &gocb.ScanTerm{Term: keys[9], Exclusive: true},
	}
	for _, each := range []struct {
		kind   gocb.ScanType
		wanted []string
	}{
		{gocb.NewRangeScanForPrefix(prefix), keys},
		{gocb.RangeScan{}, keys},
		{someOfThem, keys[5:9]},
		{gocb.SamplingScan{Limit: 100, Seed: 7}, keys},
	} {
		for _, idsOnly := range []bool{false, true} {
			if found := scanKeys(t, a, each.kind, &gocb.ScanOptions{IDsOnly: idsOnly}); !slices.Equal(found, each.wanted) {
				t.Fatalf("%+v: %v", each.kind, found)
			}
		}
	}
	if found := scanKeys(t, a, gocb.SamplingScan{Limit: 10, Seed: 7}, nil); len(slices.Compact(found)) != 10 {
		t.Fatalf("%v", found)
	}
	for _, key := range keys {
		must(a.Remove(key, nil))(t)
	}
	if found := scanKeys(t, a, gocb.RangeScan{}, nil); found != nil {
		t.Fatalf("%v", found)
	}
}

func pathsOfOne(t *testing.T, a, b *gocb.Collection) {
	for value, each := range []*gocb.Collection{a, b} {
		must(each.Upsert("paths", map[string]int{"n": value}, nil))(t)
	}
	must(a.MutateIn("paths", []gocb.MutateInSpec{
		gocb.UpsertSpec("meta.owner", "me", &gocb.UpsertSpecOptions{IsXattr: true, CreatePath: true}),
		gocb.UpsertSpec("_sys", 2, &gocb.UpsertSpecOptions{IsXattr: true}),
		gocb.IncrementSpec("n", 10, nil),
	}, nil))(t)
	attribute := &gocb.GetSpecOptions{IsXattr: true}
	paths := []gocb.LookupInSpec{
		gocb.GetSpec("meta.owner", attribute), gocb.GetSpec("_sys", attribute), gocb.GetSpec("n", nil),
	}
	found := must(a.LookupIn("paths", paths, nil))(t)
	for index, wanted := range []any{"me", 2.0, 10.0} {
		if content := contentAt(t, found, uint(index)); content != wanted {
			t.Fatalf("path %d: %v", index, content)
		}
	}
	found = must(b.LookupIn("paths", paths, nil))(t)
	if found.Exists(0) || found.Exists(1) || contentAt(t, found, 2) != 1.0 {
		t.Fatal("what was changed in one collection shows in the other")
	}
	// An attribute of the system outlives the document, in its collection only.
	must(a.Remove("paths", nil))(t)
	deleted := &gocb.LookupInOptions{}
	deleted.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted
	found = must(a.LookupIn("paths", paths[:2], deleted))(t)
	if found.Exists(0) || contentAt(t, found, 1) != 2.0 {
		t.Fatal("the tombstone has other attributes")
	}
	wantContent(t, b, "paths", map[string]int{"n": 1})
}

func TestReplicasOfACollection(t *testing.T) {
	const copies = 2
	cluster, documents := newNodes(t, copies).connect(t)
	bucket := cluster.Bucket(bucketName)
	manager, scope := newScope(t, bucket)
	a := newCollection(t, bucket, manager, scope, "a")
	for name, level := range levels {
		for n := range 20 {
			key := fmt.Sprintf("%s-%d", name, n)
			must(documents.Upsert(key, -1, nil))(t)
			must(a.Upsert(key, n, &gocb.UpsertOptions{DurabilityLevel: level}))(t)
			wantContent(t, a, key, n)
			until(t, key+" is everywhere", func() bool { return hasAll(t, a, key, n, copies) })
			var content int
			if err := must(a.GetAnyReplica(key, nil))(t).Content(&content); err != nil || content != n {
				t.Fatalf("%s: %d, %v", key, content, err)
			}
		}
	}
	pathsOnReplicas(t, a, copies)
	must(documents.Upsert("elsewhere", 1, nil))(t)
	_, err := a.GetAnyReplica("elsewhere", &gocb.GetAnyReplicaOptions{Timeout: time.Second})
	wantError(t, err, gocb.ErrDocumentUnretrievable)
}
