package sdk

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

func storedDocument(t *testing.T) string {
	t.Helper()
	key := newKey(t)
	must(collection.Upsert(key, map[string]any{
		"name": "a", "tags": []string{"x", "y"}, "address": map[string]any{"city": "b"}, "visits": 5,
	}, nil))(t)
	return key
}

func contentAt(t *testing.T, result interface {
	ContentAt(uint, any) error
}, index uint) any {
	t.Helper()
	var content any
	if err := result.ContentAt(index, &content); err != nil {
		t.Fatalf("path %d: %v", index, err)
	}
	return content
}

func TestLookupIn(t *testing.T) {
	key := storedDocument(t)
	found := must(collection.LookupIn(key, []gocb.LookupInSpec{
		gocb.GetSpec("address.city", nil),
		gocb.GetSpec("tags[-1]", nil),
		gocb.ExistsSpec("nothing", nil),
		gocb.CountSpec("tags", nil),
		gocb.GetSpec("nothing", nil),
		gocb.GetSpec("name[0]", nil),
	}, nil))(t)
	if city, tag := contentAt(t, found, 0), contentAt(t, found, 1); city != "b" || tag != "y" {
		t.Fatal(city, tag)
	}
	if found.Exists(2) || contentAt(t, found, 3) != 2.0 {
		t.Fatal("what is not there exists, or the count is wrong")
	}
	var content any
	wantError(t, found.ContentAt(4, &content), gocb.ErrPathNotFound)
	wantError(t, found.ContentAt(5, &content), gocb.ErrPathMismatch)
	_, err := collection.LookupIn(newKey(t), []gocb.LookupInSpec{gocb.GetSpec("a", nil)}, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
}

func TestMutateIn(t *testing.T) {
	key := storedDocument(t)
	changed := must(collection.MutateIn(key, []gocb.MutateInSpec{
		gocb.UpsertSpec("name", "c", nil),
		gocb.InsertSpec("a.b", 1, &gocb.InsertSpecOptions{CreatePath: true}),
		gocb.ReplaceSpec("address.city", "e", nil),
		gocb.ArrayAppendSpec("tags", "z", nil),
		gocb.ArrayPrependSpec("tags", "w", nil),
		gocb.ArrayInsertSpec("tags[1]", "v", nil),
		gocb.ArrayAddUniqueSpec("tags", "u", nil),
		gocb.IncrementSpec("visits", 3, nil),
	}, nil))(t)
	if sum := contentAt(t, changed, 7); sum != 8.0 {
		t.Fatal(sum)
	}
	wantContent(t, collection, key, map[string]any{
		"name": "c", "tags": []any{"w", "v", "x", "y", "z", "u"}, "address": map[string]any{"city": "e"},
		"visits": 8.0, "a": map[string]any{"b": 1.0},
	})
}

func TestMutateInChangesAllOrNothing(t *testing.T) {
	key := storedDocument(t)
	for _, failing := range []struct {
		spec gocb.MutateInSpec
		want error
	}{
		{gocb.InsertSpec("visits", 1, nil), gocb.ErrPathExists},
		{gocb.ReplaceSpec("nothing", 1, nil), gocb.ErrPathNotFound},
		{gocb.IncrementSpec("name", 1, nil), gocb.ErrPathMismatch},
	} {
		_, err := collection.MutateIn(key, []gocb.MutateInSpec{gocb.UpsertSpec("name", "c", nil), failing.spec}, nil)
		wantError(t, err, failing.want)
	}
	found := must(collection.LookupIn(key, []gocb.LookupInSpec{gocb.GetSpec("name", nil)}, nil))(t)
	if name := contentAt(t, found, 0); name != "a" {
		t.Fatal(name)
	}
}

func TestMutateInSemantics(t *testing.T) {
	key := newKey(t)
	specs := []gocb.MutateInSpec{gocb.UpsertSpec("a", 1, nil)}
	_, err := collection.MutateIn(key, specs, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	insert := &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsInsert}
	must(collection.MutateIn(key, specs, insert))(t)
	_, err = collection.MutateIn(key, specs, insert)
	wantError(t, err, gocb.ErrDocumentExists)
	first := must(collection.MutateIn(key, specs, &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsUpsert}))(t)
	must(collection.MutateIn(key, specs, &gocb.MutateInOptions{Cas: first.Cas()}))(t)
	_, err = collection.MutateIn(key, specs, &gocb.MutateInOptions{Cas: first.Cas()})
	// The status is the same for both, and of sub-documents the SDK does not look at whether a CAS was given.
	wantError(t, err, gocb.ErrDocumentExists)
}

func TestDurableMutateIn(t *testing.T) {
	key := storedDocument(t)
	changed := must(collection.MutateIn(key, []gocb.MutateInSpec{gocb.IncrementSpec("visits", 1, nil)},
		&gocb.MutateInOptions{DurabilityLevel: gocb.DurabilityLevelPersistToMajority}))(t)
	if sum := contentAt(t, changed, 0); sum != 6.0 || changed.MutationToken() == nil {
		t.Fatal(sum, changed.MutationToken())
	}
}

func TestMutateInExpiry(t *testing.T) {
	key := storedDocument(t)
	specs := []gocb.MutateInSpec{gocb.UpsertSpec("name", "c", nil)}
	expiry := func() time.Time {
		return must(collection.Get(key, &gocb.GetOptions{WithExpiry: true}))(t).ExpiryTime()
	}
	must(collection.MutateIn(key, specs, &gocb.MutateInOptions{Expiry: time.Hour}))(t)
	expires := expiry()
	must(collection.MutateIn(key, specs, &gocb.MutateInOptions{PreserveExpiry: true}))(t)
	if expires.Unix() <= time.Now().Unix() || !expiry().Equal(expires) {
		t.Fatal(expires, expiry())
	}
}

func TestExtendedAttributes(t *testing.T) {
	key := storedDocument(t)
	changed := must(collection.MutateIn(key, []gocb.MutateInSpec{
		gocb.UpsertSpec("meta.owner", "me", &gocb.UpsertSpecOptions{IsXattr: true, CreatePath: true}),
		gocb.UpsertSpec("_sys.cas", gocb.MutationMacroCAS, &gocb.UpsertSpecOptions{IsXattr: true, CreatePath: true}),
		gocb.UpsertSpec("_sys.crc", gocb.MutationMacroValueCRC32c, &gocb.UpsertSpecOptions{IsXattr: true}),
	}, nil))(t)
	xattr := &gocb.GetSpecOptions{IsXattr: true}
	found := must(collection.LookupIn(key, []gocb.LookupInSpec{
		gocb.GetSpec("meta", xattr), gocb.GetSpec("_sys", xattr), gocb.GetSpec("$document", xattr),
	}, nil))(t)
	if owner := contentAt(t, found, 0); !reflect.DeepEqual(owner, map[string]any{"owner": "me"}) {
		t.Fatal(owner)
	}
	document := contentAt(t, found, 2).(map[string]any)
	if cas, err := strconv.ParseUint(document["CAS"].(string), 0, 64); err != nil || gocb.Cas(cas) != changed.Cas() {
		t.Fatal(document["CAS"], changed.Cas())
	}
	if crc := contentAt(t, found, 1).(map[string]any)["crc"]; crc != document["value_crc32c"] {
		t.Fatal(crc, document["value_crc32c"])
	}
	wantName := must(collection.Get(key, nil))(t)
	var body map[string]any
	if err := wantName.Content(&body); err != nil || body["meta"] != nil {
		t.Fatal(body, err)
	}
}

func TestDeletedDocuments(t *testing.T) {
	key := newKey(t)
	staged := &gocb.MutateInOptions{StoreSemantic: gocb.StoreSemanticsInsert}
	staged.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted | gocb.SubdocDocFlagCreateAsDeleted
	must(collection.MutateIn(key, []gocb.MutateInSpec{
		gocb.UpsertSpec("txn.id", 1, &gocb.UpsertSpecOptions{IsXattr: true, CreatePath: true}),
	}, staged))(t)
	_, err := collection.Get(key, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	specs := []gocb.LookupInSpec{gocb.GetSpec("txn.id", &gocb.GetSpecOptions{IsXattr: true})}
	_, err = collection.LookupIn(key, specs, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
	deleted := &gocb.LookupInOptions{}
	deleted.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted
	found := must(collection.LookupIn(key, specs, deleted))(t)
	if id := contentAt(t, found, 0); id != 1.0 {
		t.Fatal(id)
	}
}
