package sdk

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// newScope makes a scope that goes with the test.
func newScope(t *testing.T, bucket *gocb.Bucket) (*gocb.CollectionManagerV2, string) {
	t.Helper()
	manager := bucket.CollectionsV2()
	key := newKey(t)
	scope := "s-" + key[strings.LastIndex(key, "-")+1:]
	if err := manager.CreateScope(scope, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = manager.DropScope(scope, nil) })
	return manager, scope
}

func newCollection(t *testing.T, bucket *gocb.Bucket, manager *gocb.CollectionManagerV2, scope, name string) *gocb.Collection {
	t.Helper()
	if err := manager.CreateCollection(scope, name, nil, nil); err != nil {
		t.Fatal(err)
	}
	return bucket.Scope(scope).Collection(name)
}

// specs gives the collections of a scope.
func specs(t *testing.T, manager *gocb.CollectionManagerV2, scope string) map[string]gocb.CollectionSpec {
	t.Helper()
	for _, each := range must(manager.GetAllScopes(nil))(t) {
		if each.Name == scope {
			found := map[string]gocb.CollectionSpec{}
			for _, collection := range each.Collections {
				found[collection.Name] = collection
			}
			return found
		}
	}
	return nil
}

func TestCreateAndDropCollections(t *testing.T) {
	bucket := cluster.Bucket(bucketName)
	manager, scope := newScope(t, bucket)
	wantError(t, manager.CreateScope(scope, nil), gocb.ErrScopeExists)
	newCollection(t, bucket, manager, scope, "a")
	wantError(t, manager.CreateCollection(scope, "a", nil, nil), gocb.ErrCollectionExists)
	wantError(t, manager.CreateCollection(scope+"x", "a", nil, nil), gocb.ErrScopeNotFound)
	wantError(t, manager.CreateCollection(scope, "_a", nil, nil), gocb.ErrInvalidArgument)
	for name, ttl := range map[string]time.Duration{"b": 10 * time.Minute, "never": -time.Second} {
		settings := &gocb.CreateCollectionSettings{MaxExpiry: ttl}
		if err := manager.CreateCollection(scope, name, settings, nil); err != nil {
			t.Fatal(err)
		}
		if found := specs(t, manager, scope)[name]; found.MaxExpiry != ttl {
			t.Fatalf("%+v", found)
		}
	}
	if err := manager.UpdateCollection(scope, "b", gocb.UpdateCollectionSettings{MaxExpiry: time.Minute}, nil); err != nil {
		t.Fatal(err)
	}
	if found := specs(t, manager, scope); len(found) != 3 || found["b"].MaxExpiry != time.Minute {
		t.Fatalf("%+v", found)
	}
	if err := manager.DropCollection(scope, "a", nil); err != nil {
		t.Fatal(err)
	}
	wantError(t, manager.DropCollection(scope, "a", nil), gocb.ErrCollectionNotFound)
	if err := manager.DropScope(scope, nil); err != nil {
		t.Fatal(err)
	}
	wantError(t, manager.DropScope(scope, nil), gocb.ErrScopeNotFound)
	if specs(t, manager, scope) != nil {
		t.Fatal("it is still there")
	}
}

// The manager of before, whose calls take the settings with the name.
func TestCollectionsByTheirSpecifications(t *testing.T) {
	manager := cluster.Bucket(bucketName).Collections()
	key := newKey(t)
	scope := "s-" + key[strings.LastIndex(key, "-")+1:]
	if err := manager.CreateScope(scope, nil); err != nil {
		t.Fatal(err)
	}
	spec := gocb.CollectionSpec{Name: "a", ScopeName: scope, MaxExpiry: time.Minute}
	if err := manager.CreateCollection(spec, nil); err != nil {
		t.Fatal(err)
	}
	wantError(t, manager.CreateCollection(spec, nil), gocb.ErrCollectionExists)
	spec.MaxExpiry = time.Hour
	if err := manager.UpdateCollection(spec, nil); err != nil {
		t.Fatal(err)
	}
	isIt := func(one gocb.ScopeSpec) bool {
		return one.Name == scope && len(one.Collections) == 1 && one.Collections[0].MaxExpiry == time.Hour
	}
	if all := must(manager.GetAllScopes(nil))(t); !slices.ContainsFunc(all, isIt) {
		t.Fatalf("%+v", all)
	}
	if err := manager.DropCollection(spec, nil); err != nil {
		t.Fatal(err)
	}
	wantError(t, manager.DropCollection(spec, nil), gocb.ErrCollectionNotFound)
	if err := manager.DropScope(scope, nil); err != nil {
		t.Fatal(err)
	}
	wantError(t, manager.DropScope(scope, nil), gocb.ErrScopeNotFound)
}

func TestDocumentsOfCollectionsAreApart(t *testing.T) {
	bucket := cluster.Bucket(bucketName)
	manager, scope := newScope(t, bucket)
	key := newKey(t)
	all := []*gocb.Collection{
		newCollection(t, bucket, manager, scope, "a"), newCollection(t, bucket, manager, scope, "b"), collection,
	}
	for value, each := range all {
		must(each.Upsert(key, value, nil))(t)
	}
	for value, each := range all {
		wantContent(t, each, key, value)
	}
	must(all[0].Remove(key, nil))(t)
	for at, each := range all {
		if must(each.Exists(key, nil))(t).Exists() != (at > 0) {
			t.Fatal(at)
		}
	}
}

func TestUnknownCollections(t *testing.T) {
	bucket := cluster.Bucket(bucketName)
	_, scope := newScope(t, bucket)
	options := &gocb.GetOptions{RetryStrategy: failFast{}, Timeout: time.Second}
	for _, name := range []string{scope, scope + "x"} {
		if _, err := bucket.Scope(name).Collection("none").Get("key", options); err == nil {
			t.Fatal("it is there")
		}
	}
}

func TestACollectionMadeAnewIsEmpty(t *testing.T) {
	bucket := cluster.Bucket(bucketName)
	manager, scope := newScope(t, bucket)
	a := newCollection(t, bucket, manager, scope, "a")
	for value := range 3 {
		until(t, "the new collection is used, and empty", func() bool {
			found, err := a.Exists("key", nil)
			return err == nil && !found.Exists()
		})
		must(a.Upsert("key", value, nil))(t)
		wantContent(t, a, "key", value)
		if err := manager.DropCollection(scope, "a", nil); err != nil {
			t.Fatal(err)
		}
		newCollection(t, bucket, manager, scope, "a")
	}
}
