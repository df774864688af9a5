package sdk

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// Distributed transactions of the SDK. They stand on extended attributes, macros, documents created as deleted, CAS and
// durable writes.

// onOneNodeAndOnTwo runs a test with the cluster that all share, and with one of two nodes, each with a replica.
func onOneNodeAndOnTwo(t *testing.T, test func(*testing.T, *gocb.Cluster, *gocb.Collection)) {
	t.Run("one node", func(t *testing.T) { test(t, cluster, collection) })
	t.Run("two nodes", func(t *testing.T) {
		own, documents := newNodes(t, 2).connect(t)
		test(t, own, documents)
	})
}

// transact runs a transaction, with time enough on a busy machine.
func transact(cluster *gocb.Cluster, work gocb.AttemptFunc) error {
	return transactWith(cluster, gocb.TransactionOptions{}, work)
}

func transactWith(cluster *gocb.Cluster, options gocb.TransactionOptions, work gocb.AttemptFunc) error {
	options.Timeout = time.Minute
	_, err := cluster.Transactions().Run(work, &options)
	return err
}

type counted struct {
	N int `json:"n"`
}

func wantNothingStaged(t *testing.T, collection *gocb.Collection, key string) {
	t.Helper()
	options := &gocb.LookupInOptions{}
	options.Internal.DocFlags = gocb.SubdocDocFlagAccessDeleted
	found := must(collection.LookupIn(key, []gocb.LookupInSpec{
		gocb.GetSpec("txn", &gocb.GetSpecOptions{IsXattr: true}),
	}, options))(t)
	if found.Exists(0) {
		t.Fatalf("%s has something staged", key)
	}
}

func TestTransactions(t *testing.T) {
	onOneNodeAndOnTwo(t, func(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
		t.Run("commit", func(t *testing.T) { commits(t, cluster, documents) })
		t.Run("rollback", func(t *testing.T) { rollsBack(t, cluster, documents) })
		t.Run("refusals", func(t *testing.T) { refuses(t, cluster, documents) })
		t.Run("insert after remove", func(t *testing.T) { insertsAfterRemove(t, cluster, documents) })
		t.Run("a write between", func(t *testing.T) { beginsAgain(t, cluster, documents) })
		t.Run("conflicts", func(t *testing.T) { takeTurns(t, cluster, documents) })
		t.Run("levels", func(t *testing.T) { commitsAtEveryLevel(t, cluster, documents) })
		t.Run("metadata", func(t *testing.T) { hasItsMetadataElsewhere(t, cluster, documents) })
	})
}

// change stages one of each kind.
func change(ctx *gocb.TransactionAttemptContext, documents *gocb.Collection, inserted, replaced, removed string) error {
	if _, err := ctx.Insert(documents, inserted, counted{3}); err != nil {
		return err
	}
	found, err := ctx.Get(documents, replaced)
	if err != nil {
		return err
	}
	if _, err := ctx.Replace(found, counted{4}); err != nil {
		return err
	}
	if found, err = ctx.Get(documents, removed); err != nil {
		return err
	}
	return ctx.Remove(found)
}

func commits(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	inserted, replaced, removed := newKey(t), newKey(t), newKey(t)
	must(documents.Upsert(replaced, counted{1}, nil))(t)
	must(documents.Upsert(removed, counted{2}, nil))(t)
	err := transact(cluster, func(ctx *gocb.TransactionAttemptContext) error {
		if err := change(ctx, documents, inserted, replaced, removed); err != nil {
			return err
		}
		// The transaction sees its changes, and nobody else does.
		for key, wanted := range map[string]int{inserted: 3, replaced: 4} {
			var content counted
			found, err := ctx.Get(documents, key)
			if err != nil {
				return err
			}
			if err := found.Content(&content); err != nil || content.N != wanted {
				return fmt.Errorf("%s: %v, %w", key, content, err)
			}
		}
		if _, err := ctx.Get(documents, removed); !errors.Is(err, gocb.ErrDocumentNotFound) {
			return fmt.Errorf("removed, yet found: %w", err)
		}
		if must(documents.Exists(inserted, nil))(t).Exists() {
			t.Error("others see what is staged")
		}
		wantContent(t, documents, replaced, counted{1})
		wantContent(t, documents, removed, counted{2})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, documents, inserted, counted{3})
	wantContent(t, documents, replaced, counted{4})
	if must(documents.Exists(removed, nil))(t).Exists() {
		t.Fatal("the removed document exists")
	}
	wantNothingStaged(t, documents, inserted)
	wantNothingStaged(t, documents, replaced)
}

func rollsBack(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	inserted, replaced, removed := newKey(t), newKey(t), newKey(t)
	must(documents.Upsert(replaced, counted{1}, nil))(t)
	must(documents.Upsert(removed, counted{2}, nil))(t)
	enough := errors.New("enough")
	err := transact(cluster, func(ctx *gocb.TransactionAttemptContext) error {
		if err := change(ctx, documents, inserted, replaced, removed); err != nil {
			return err
		}
		return enough
	})
	var failed *gocb.TransactionFailedError
	if !errors.As(err, &failed) || !errors.Is(err, enough) {
		t.Fatalf("got %v", err)
	}
	if must(documents.Exists(inserted, nil))(t).Exists() {
		t.Fatal("the insert was not taken back")
	}
	wantContent(t, documents, replaced, counted{1})
	wantContent(t, documents, removed, counted{2})
	wantNothingStaged(t, documents, replaced)
	wantNothingStaged(t, documents, removed)
	// The key of what was staged is free again.
	must(documents.Insert(inserted, counted{5}, nil))(t)
}

func refuses(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	stored, missing := newKey(t), newKey(t)
	must(documents.Upsert(stored, counted{1}, nil))(t)
	err := transact(cluster, func(ctx *gocb.TransactionAttemptContext) error {
		if _, err := ctx.Get(documents, missing); !errors.Is(err, gocb.ErrDocumentNotFound) {
			return fmt.Errorf("a missing document: %w", err)
		}
		if _, err := ctx.Insert(documents, stored, counted{2}); !errors.Is(err, gocb.ErrDocumentExists) {
			return fmt.Errorf("inserted twice: %w", err)
		}
		found, err := ctx.Get(documents, stored)
		if err != nil {
			return err
		}
		_, err = ctx.Replace(found, counted{3})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, documents, stored, counted{3})
}

func insertsAfterRemove(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	key := newKey(t)
	must(documents.Upsert(key, counted{1}, nil))(t)
	must(documents.Remove(key, nil))(t)
	err := transact(cluster, func(ctx *gocb.TransactionAttemptContext) error {
		_, err := ctx.Insert(documents, key, counted{2})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, documents, key, counted{2})
}

func beginsAgain(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	key := newKey(t)
	must(documents.Upsert(key, counted{1}, nil))(t)
	attempts := 0
	err := transact(cluster, func(ctx *gocb.TransactionAttemptContext) error {
		found, err := ctx.Get(documents, key)
		if err != nil {
			return err
		}
		if attempts++; attempts == 1 {
			must(documents.Upsert(key, counted{10}, nil))(t)
		}
		var content counted
		if err := found.Content(&content); err != nil {
			return err
		}
		_, err = ctx.Replace(found, counted{content.N + 1})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wantContent(t, documents, key, counted{11})
	if attempts < 2 {
		t.Fatalf("%d attempts", attempts)
	}
}

// Each writer moves 1 from one document to the other, so what one of them loses shows in the sums.
func takeTurns(t *testing.T, cluster *gocb.Cluster, documents *gocb.Collection) {
	const writers, each = 3, 4
	one, other := newKey(t), newKey(t)
	must(documents.Upsert(one, counted{100}, nil))(t)
	must(documents.Upsert(other, counted{0}, nil))(t)
	add := func(ctx *gocb.TransactionAttemptContext, key string, delta int) error {
		found, err := ctx.Get(documents, key)
		if err != nil {
			return err
		}
		var content counted
		if err := found.Content(&content); err != nil {
			return err
		}
		_, err = ctx.Replace(found, counted{content.N + delta})
		return err
	}
	failures := make([]error, writers)
	var group sync.WaitGroup
	for writer := range writers {
		group.Add(1)
		go func() {
			defer group.Done()
			for n := 0; n < each && failures[writer] == nil; n++ {
				failures[writer] = transact(cluster, func(ctx *gocb.TransactionAttemptContext) error {
					if err := add(ctx, one, -1); err != nil {
						return err
					}
					return add(ctx, other, 1)
				})
			}
		}()
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
	wantContent(t, documents, one, counted{100 - writers*each})
	wantContent(t, documents, other, counted{writers * each})
}
