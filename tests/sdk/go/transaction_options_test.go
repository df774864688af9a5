package sdk

import (
	"slices"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"
)

func commitsAtEveryLevel(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	for name, level := range levels {
		inserted, replaced, removed := newKey(t), newKey(t), newKey(t)
		must(documents.Upsert(replaced, counted{1}, nil))(t)
		must(documents.Upsert(removed, counted{2}, nil))(t)
		options := gocb.TransactionOptions{DurabilityLevel: level}
		err := transactWith(cluster, options, func(ctx *gocb.TransactionAttemptContext) error {
			return change(ctx, documents, inserted, replaced, removed)
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantContent(t, documents, inserted, counted{3})
		wantContent(t, documents, replaced, counted{4})
		if must(documents.Exists(removed, nil))(t).Exists() {
			t.Fatalf("%s: the removed document exists", name)
		}
		wantNothingStaged(t, documents, inserted)
		wantNothingStaged(t, documents, replaced)
	}
}

// What a transaction notes of its progress is in a collection of its own; documents of two others change together.
func hasItsMetadataElsewhere(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	bucket := cluster.Bucket(bucketName)
	manager, scope := newScope(t, bucket)
	a := newCollection(t, bucket, manager, scope, "a")
	metadata := newCollection(t, bucket, manager, scope, "metadata")
	all := []*gocb.Collection{a, documents}
	key := newKey(t)
	for n, each := range all {
		must(each.Upsert(key, counted{n}, nil))(t)
	}
	records := func() []string {
		return scanKeys(t, metadata, gocb.NewRangeScanForPrefix("_txn:"), &gocb.ScanOptions{IDsOnly: true})
	}
	if found := records(); found != nil {
		t.Fatalf("%v", found)
	}
	options := gocb.TransactionOptions{MetadataCollection: metadata}
	err := transactWith(cluster, options, func(ctx *gocb.TransactionAttemptContext) error {
		for n, each := range all {
			found, err := ctx.Get(each, key)
			if err != nil {
				return err
			}
			if _, err := ctx.Replace(found, counted{n + 10}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for n, each := range all {
		wantContent(t, each, key, counted{n + 10})
		wantNothingStaged(t, each, key)
	}
	isRecord := func(key string) bool { return strings.HasPrefix(key, "_txn:atr-") }
	if found := records(); !slices.ContainsFunc(found, isRecord) {
		t.Fatalf("%v", found)
	}
}
