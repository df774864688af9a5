package sdk

import (
	"fmt"
	"testing"

	"github.com/couchbase/gocb/v2"
)

var levels = map[string]gocb.DurabilityLevel{
	"Majority":                   gocb.DurabilityLevelMajority,
	"MajorityAndPersistOnMaster": gocb.DurabilityLevelMajorityAndPersistOnMaster,
	"PersistToMajority":          gocb.DurabilityLevelPersistToMajority,
}

func TestEveryWriteAtEveryLevel(t *testing.T) {
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			key := newKey(t)
			must(collection.Insert(key, 1, &gocb.InsertOptions{DurabilityLevel: level}))(t)
			_, err := collection.Insert(key, 2, &gocb.InsertOptions{DurabilityLevel: level})
			wantError(t, err, gocb.ErrDocumentExists)
			stored := must(collection.Upsert(key, 3, &gocb.UpsertOptions{DurabilityLevel: level}))(t)
			if stored.MutationToken() == nil {
				t.Fatal("no mutation token")
			}
			replace := &gocb.ReplaceOptions{DurabilityLevel: level, Cas: stored.Cas()}
			replaced := must(collection.Replace(key, 4, replace))(t)
			_, err = collection.Replace(key, 5, replace)
			wantError(t, err, gocb.ErrCasMismatch)
			wantContent(t, collection, key, 4)
			if cas := must(collection.Get(key, nil))(t).Cas(); cas != replaced.Cas() {
				t.Fatalf("CAS %v and %v", cas, replaced.Cas())
			}
			must(collection.Remove(key, &gocb.RemoveOptions{DurabilityLevel: level}))(t)
			_, err = collection.Get(key, nil)
			wantError(t, err, gocb.ErrDocumentNotFound)
		})
	}
}

func TestBinaryWritesAtEveryLevel(t *testing.T) {
	for name, level := range levels {
		t.Run(name, func(t *testing.T) {
			counter, text := newKey(t), newKey(t)
			options := &gocb.IncrementOptions{Initial: 7, Delta: 1, DurabilityLevel: level}
			for _, wanted := range []uint64{7, 8} {
				if got := must(collection.Binary().Increment(counter, options))(t).Content(); got != wanted {
					t.Fatalf("got %d, wanted %d", got, wanted)
				}
			}
			must(collection.Upsert(text, []byte("a"), &gocb.UpsertOptions{Transcoder: raw}))(t)
			must(collection.Binary().Append(text, []byte("b"), &gocb.AppendOptions{DurabilityLevel: level}))(t)
			if got := string(readRaw(t, text)); got != "ab" {
				t.Fatal(got)
			}
		})
	}
}

func TestConcurrentDurableWrites(t *testing.T) {
	const writers, each = 50, 20
	prefix := newKey(t)
	errors := make(chan error, writers)
	for writer := range writers {
		go func() {
			var failed error
			for n := 0; n < each && failed == nil; n++ {
				key := fmt.Sprintf("%s-%d-%d", prefix, writer, n)
				options := &gocb.UpsertOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}
				_, failed = collection.Upsert(key, n, options)
			}
			errors <- failed
		}()
	}
	for range writers {
		if err := <-errors; err != nil {
			t.Fatal(err)
		}
	}
	wantContent(t, collection, fmt.Sprintf("%s-%d-%d", prefix, writers-1, each-1), each-1)
}
