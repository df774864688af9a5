package sdk

import (
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

func TestLockAndUnlock(t *testing.T) {
	key := newKey(t)
	must(collection.Upsert(key, 1, nil))(t)
	locked := must(collection.GetAndLock(key, 30*time.Second, nil))(t)
	wantContent(t, collection, key, 1)
	_, err := collection.Upsert(key, 2, &gocb.UpsertOptions{RetryStrategy: failFast{}})
	wantError(t, err, gocb.ErrDocumentLocked)
	_, err = collection.GetAndLock(key, time.Second, &gocb.GetAndLockOptions{RetryStrategy: failFast{}})
	wantError(t, err, gocb.ErrDocumentLocked)
	if err := collection.Unlock(key, locked.Cas(), nil); err != nil {
		t.Fatal(err)
	}
	must(collection.Upsert(key, 3, nil))(t)
	wantContent(t, collection, key, 3)
}

func TestWriteWithTheCasOfTheLockUnlocks(t *testing.T) {
	key := newKey(t)
	must(collection.Upsert(key, 1, nil))(t)
	locked := must(collection.GetAndLock(key, 30*time.Second, nil))(t)
	must(collection.Replace(key, 2, &gocb.ReplaceOptions{Cas: locked.Cas()}))(t)
	must(collection.Upsert(key, 3, &gocb.UpsertOptions{RetryStrategy: failFast{}}))(t)
}

func TestUnlockNeedsTheCasOfTheLock(t *testing.T) {
	key := newKey(t)
	options := &gocb.UnlockOptions{RetryStrategy: failFast{}}
	stored := must(collection.Upsert(key, 1, nil))(t)
	wantError(t, collection.Unlock(key, stored.Cas(), options), gocb.ErrDocumentNotLocked)
	locked := must(collection.GetAndLock(key, 30*time.Second, nil))(t)
	if err := collection.Unlock(key, locked.Cas()+1, options); err == nil {
		t.Fatal("unlocked with another CAS")
	}
	if err := collection.Unlock(key, locked.Cas(), options); err != nil {
		t.Fatal(err)
	}
	_, err := collection.GetAndLock(newKey(t), time.Second, nil)
	wantError(t, err, gocb.ErrDocumentNotFound)
}

func TestLockEndsByItself(t *testing.T) {
	key := newKey(t)
	must(collection.Upsert(key, 1, nil))(t)
	must(collection.GetAndLock(key, time.Second, nil))(t)
	// The SDK tries again for as long as the document is locked.
	must(collection.Upsert(key, 2, nil))(t)
	wantContent(t, collection, key, 2)
}
