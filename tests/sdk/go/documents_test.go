package sdk

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

const largestValue = 20 << 20

var raw = gocb.NewRawBinaryTranscoder()

func TestJSONValues(t *testing.T) {
	for _, value := range []any{
		map[string]any{"a": []any{1.0, 2.5, nil, true, "ä\u0000"}}, []any{}, "text", 0.0, -1.5, true, nil,
	} {
		key := newKey(t)
		must(collection.Upsert(key, value, nil))(t)
		wantContent(t, collection, key, value)
	}
}

func TestBinaryValues(t *testing.T) {
	random := make([]byte, 100_000)
	must(rand.Read(random))(t)
	for _, value := range [][]byte{{}, bytes.Repeat([]byte{0, 255}, 1000), random} {
		key := newKey(t)
		must(collection.Upsert(key, value, &gocb.UpsertOptions{Transcoder: raw}))(t)
		if got := readRaw(t, key); !bytes.Equal(got, value) {
			t.Fatalf("%d bytes came back as %d", len(value), len(got))
		}
	}
}

func readRaw(t *testing.T, key string) []byte {
	t.Helper()
	var content []byte
	if err := must(collection.Get(key, &gocb.GetOptions{Transcoder: raw}))(t).Content(&content); err != nil {
		t.Fatal(err)
	}
	return content
}

func TestInsertReplaceRemove(t *testing.T) {
	key := newKey(t)
	_, err := collection.Get(key, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	_, err = collection.Replace(key, 0, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	_, err = collection.Remove(key, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	must(collection.Insert(key, 1, nil))(t)
	_, err = collection.Insert(key, 2, nil)
	wantError(t, err, gocb.ErrDocumentExists)
	must(collection.Replace(key, 3, nil))(t)
	wantContent(t, collection, key, 3)
	must(collection.Remove(key, nil))(t)
	_, err = collection.Get(key, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
}

func TestExists(t *testing.T) {
	key := newKey(t)
	if must(collection.Exists(key, nil))(t).Exists() {
		t.Fatal("exists before it was written")
	}
	stored := must(collection.Upsert(key, 1, nil))(t)
	found := must(collection.Exists(key, nil))(t)
	if !found.Exists() || found.Cas() != stored.Cas() {
		t.Fatalf("%v, CAS %v and %v", found.Exists(), found.Cas(), stored.Cas())
	}
	must(collection.Remove(key, nil))(t)
	if must(collection.Exists(key, nil))(t).Exists() {
		t.Fatal("exists after it was removed")
	}
}

func TestCasConflicts(t *testing.T) {
	key := newKey(t)
	first := must(collection.Upsert(key, 1, nil))(t).Cas()
	second := must(collection.Replace(key, 2, &gocb.ReplaceOptions{Cas: first}))(t).Cas()
	if second <= first {
		t.Fatalf("CAS went from %v to %v", first, second)
	}
	_, err := collection.Replace(key, 3, &gocb.ReplaceOptions{Cas: first})
	wantError(t, err, gocb.ErrCasMismatch)
	_, err = collection.Remove(key, &gocb.RemoveOptions{Cas: first})
	wantError(t, err, gocb.ErrCasMismatch)
	wantContent(t, collection, key, 2)
	must(collection.Remove(key, &gocb.RemoveOptions{Cas: second}))(t)
}

func TestMutationTokensGrow(t *testing.T) {
	key := newKey(t)
	first := must(collection.Upsert(key, 1, nil))(t).MutationToken()
	second := must(collection.Upsert(key, 2, nil))(t).MutationToken()
	if first == nil || second == nil {
		t.Fatal("no mutation tokens")
	}
	same := first.PartitionID() == second.PartitionID() && first.PartitionUUID() == second.PartitionUUID()
	if !same || first.PartitionUUID() == 0 || second.SequenceNumber() <= first.SequenceNumber() {
		t.Fatalf("%+v then %+v", first, second)
	}
}

func TestExpiry(t *testing.T) {
	upserted, inserted := newKey(t), newKey(t)
	must(collection.Upsert(upserted, 1, &gocb.UpsertOptions{Expiry: time.Second}))(t)
	must(collection.Insert(inserted, 1, &gocb.InsertOptions{Expiry: time.Second}))(t)
	untilGone(t, upserted)
	untilGone(t, inserted)
	must(collection.Insert(inserted, 2, nil))(t)
	wantContent(t, collection, inserted, 2)
}

func TestTouch(t *testing.T) {
	key := newKey(t)
	must(collection.Upsert(key, 1, nil))(t)
	must(collection.Touch(key, time.Second, nil))(t)
	untilGone(t, key)
	_, err := collection.Touch(key, time.Second, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
}

func TestGetAndTouch(t *testing.T) {
	key := newKey(t)
	must(collection.Upsert(key, "value", nil))(t)
	var content string
	if err := must(collection.GetAndTouch(key, time.Second, nil))(t).Content(&content); err != nil || content != "value" {
		t.Fatalf("%q, %v", content, err)
	}
	untilGone(t, key)
	_, err := collection.GetAndTouch(key, time.Second, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
}

func TestPreserveExpiry(t *testing.T) {
	key := newKey(t)
	expiry := func() time.Time {
		return must(collection.Get(key, &gocb.GetOptions{WithExpiry: true}))(t).ExpiryTime()
	}
	must(collection.Upsert(key, 1, &gocb.UpsertOptions{Expiry: time.Hour}))(t)
	expires := expiry()
	if expires.Unix() <= 0 {
		t.Fatalf("expires at %v", expires)
	}
	must(collection.Upsert(key, 2, &gocb.UpsertOptions{PreserveExpiry: true}))(t)
	wantContent(t, collection, key, 2)
	if kept := expiry(); !kept.Equal(expires) {
		t.Fatalf("%v became %v", expires, kept)
	}
	must(collection.Upsert(key, 3, nil))(t)
	if dropped := expiry(); dropped.Unix() > 0 {
		t.Fatalf("still expires at %v", dropped)
	}
}

func TestCounters(t *testing.T) {
	key := newKey(t)
	binary := collection.Binary()
	_, err := binary.Increment(key, &gocb.IncrementOptions{Initial: -1, Delta: 1})
	wantError(t, err, gocb.ErrDocumentNotFound)
	check := func(result *gocb.CounterResult, wanted uint64) {
		t.Helper()
		if result.Content() != wanted {
			t.Fatalf("got %d, wanted %d", result.Content(), wanted)
		}
	}
	check(must(binary.Increment(key, &gocb.IncrementOptions{Initial: 10, Delta: 1}))(t), 10)
	check(must(binary.Increment(key, &gocb.IncrementOptions{Initial: -1, Delta: 5}))(t), 15)
	check(must(binary.Decrement(key, &gocb.DecrementOptions{Initial: -1, Delta: 3}))(t), 12)
	check(must(binary.Decrement(key, &gocb.DecrementOptions{Initial: -1, Delta: 100}))(t), 0)
	wantContent(t, collection, key, 0)

	text := newKey(t)
	must(collection.Upsert(text, "text", nil))(t)
	if _, err := binary.Increment(text, &gocb.IncrementOptions{Delta: 1}); err == nil {
		t.Fatal("text was incremented")
	}
}

func TestAppendAndPrepend(t *testing.T) {
	key := newKey(t)
	binary := collection.Binary()
	if _, err := binary.Append(key, []byte("x"), nil); err == nil {
		t.Fatal("appended to a document that is not there")
	}
	must(collection.Upsert(key, []byte("middle"), &gocb.UpsertOptions{Transcoder: raw}))(t)
	must(binary.Append(key, []byte("-end"), nil))(t)
	must(binary.Prepend(key, []byte("start-"), nil))(t)
	if got := string(readRaw(t, key)); got != "start-middle-end" {
		t.Fatal(got)
	}
}

func TestAppendToCompressedValue(t *testing.T) {
	// Long and repetitive, so the SDK sends it compressed; the server must inflate before it appends.
	key := newKey(t)
	text := bytes.Repeat([]byte("compressible "), 1000)
	must(collection.Upsert(key, text, &gocb.UpsertOptions{Transcoder: raw}))(t)
	must(collection.Binary().Append(key, text, nil))(t)
	if got := readRaw(t, key); !bytes.Equal(got, append(text, text...)) {
		t.Fatalf("%d bytes came back", len(got))
	}
}

func TestTooLarge(t *testing.T) {
	key := newKey(t)
	random := make([]byte, largestValue+1)
	must(rand.Read(random))(t)
	options := &gocb.UpsertOptions{Transcoder: raw}
	must(collection.Upsert(key, random[:largestValue], options))(t)
	for name, value := range map[string][]byte{"random": random, "compressible": make([]byte, largestValue+1)} {
		if _, err := collection.Upsert(key, value, options); !errors.Is(err, gocb.ErrValueTooLarge) {
			t.Fatalf("%s: got %v", name, err)
		}
	}
	if !bytes.Equal(readRaw(t, key), random[:largestValue]) {
		t.Fatal("the stored value changed")
	}
	must(collection.Remove(key, nil))(t)
}

func TestTenThousandDocuments(t *testing.T) {
	tenThousand(t, collection)
}

// tenThousand stores, reads and removes that many documents in bulk.
func tenThousand(t *testing.T, collection *gocb.Collection) {
	t.Helper()
	const count = 10_000
	prefix := newKey(t)
	key := func(n int) string { return fmt.Sprintf("%s-%d", prefix, n) }
	writes := make([]gocb.BulkOp, count)
	reads := make([]gocb.BulkOp, count)
	removes := make([]gocb.BulkOp, count)
	for n := range count {
		writes[n] = &gocb.UpsertOp{ID: key(n), Value: map[string]int{"n": n}}
		reads[n] = &gocb.GetOp{ID: key(n)}
		removes[n] = &gocb.RemoveOp{ID: key(n)}
	}
	for _, batch := range [][]gocb.BulkOp{writes, reads, removes} {
		for start := 0; start < count; start += 1000 {
			if err := collection.Do(batch[start:start+1000], nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := range count {
		write, read, remove := writes[n].(*gocb.UpsertOp), reads[n].(*gocb.GetOp), removes[n].(*gocb.RemoveOp)
		if err := errors.Join(write.Err, read.Err, remove.Err); err != nil {
			t.Fatal(err)
		}
		var content map[string]int
		if err := read.Result.Content(&content); err != nil || content["n"] != n {
			t.Fatalf("%d: %v, %v", n, content, err)
		}
	}
	if must(collection.Exists(key(0), nil))(t).Exists() || must(collection.Exists(key(count-1), nil))(t).Exists() {
		t.Fatal("what was removed exists")
	}
}
