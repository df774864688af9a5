package sdk

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// Stores documents whose keys begin with a prefix of their own, and gives these.
func scanned(t *testing.T, collection *gocb.Collection, count int) (string, []string) {
	t.Helper()
	prefix := "scan-" + strings.ReplaceAll(t.Name(), "/", "-") + "-"
	var keys []string
	for n := range count {
		key := fmt.Sprintf("%s%03d", prefix, n)
		if _, err := collection.Upsert(key, map[string]int{"n": n}, nil); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return prefix, keys
}

func scanKeys(t *testing.T, collection *gocb.Collection, kind gocb.ScanType, options *gocb.ScanOptions) []string {
	t.Helper()
	result, err := collection.Scan(kind, options)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for item := result.Next(); item != nil; item = result.Next() {
		keys = append(keys, item.ID())
		var content map[string]int
		err := item.Content(&content)
		if options != nil && options.IDsOnly {
			if err == nil {
				t.Fatalf("%s has a value", item.ID())
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

func TestScanOfAPrefix(t *testing.T) {
	prefix, keys := scanned(t, collection, 100)
	for _, idsOnly := range []bool{false, true} {
		found := scanKeys(t, collection, gocb.NewRangeScanForPrefix(prefix), &gocb.ScanOptions{IDsOnly: idsOnly})
		if !slices.Equal(found, keys) {
			t.Fatalf("%d of %d", len(found), len(keys))
		}
	}
	if found := scanKeys(t, collection, gocb.NewRangeScanForPrefix("no-such-prefix"), nil); found != nil {
		t.Fatalf("%v", found)
	}
}

func TestScanOfARange(t *testing.T) {
	prefix, keys := scanned(t, collection, 100)
	kind := gocb.RangeScan{
		From: &gocb.ScanTerm{Term: prefix + "010"},
		To:   &gocb.ScanTerm{Term: prefix + "019", Exclusive: true},
	}
	// Small batches: each scan is continued several times.
	options := &gocb.ScanOptions{BatchItemLimit: new(uint32), Concurrency: 4}
	*options.BatchItemLimit = 1
	if found := scanKeys(t, collection, kind, options); !slices.Equal(found, keys[10:19]) {
		t.Fatalf("%v", found)
	}
}

func TestScanSeesWhatWasWrittenBefore(t *testing.T) {
	prefix, keys := scanned(t, collection, 20)
	if _, err := collection.Remove(keys[3], nil); err != nil {
		t.Fatal(err)
	}
	result, err := collection.Upsert(keys[4], map[string]int{"n": 400}, nil)
	if err != nil {
		t.Fatal(err)
	}
	state := gocb.NewMutationState(*result.MutationToken())
	options := &gocb.ScanOptions{ConsistentWith: state}
	found := scanKeys(t, collection, gocb.NewRangeScanForPrefix(prefix), options)
	if !slices.Equal(found, slices.Delete(slices.Clone(keys), 3, 4)) {
		t.Fatalf("%v", found)
	}
}

func TestScanOfASample(t *testing.T) {
	scanned(t, collection, 100)
	for _, idsOnly := range []bool{false, true} {
		options := &gocb.ScanOptions{IDsOnly: idsOnly}
		result := must(collection.Scan(gocb.SamplingScan{Limit: 30, Seed: 7}, options))(t)
		found := map[string]bool{}
		for item := result.Next(); item != nil; item = result.Next() {
			found[item.ID()] = true
		}
		if err := result.Err(); err != nil {
			t.Fatal(err)
		}
		if len(found) != 30 {
			t.Fatalf("%d documents", len(found))
		}
	}
}
