package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"syscall"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// A client of DCP gets everything of all collections once, though it goes away and comes back, and though what it missed is
// in files only. One that asks for some collections gets these, also in the order of keys.
func TestAStreamResumesWhereItWas(t *testing.T) {
	for name, run := range map[string]func(t *testing.T) nodes{
		"one server": one,
		"two nodes":  func(t *testing.T) nodes { return clusterOf(t, 2, 1, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			streamResumes(t, run(t))
		})
	}
}

// writer writes to collections, and knows what is in them.
type writer struct {
	collections map[uint32]*gocb.Collection
	documents   map[place]string
	written     int
}

func (w *writer) write(t *testing.T, count int) {
	t.Helper()
	for range count {
		for id, collection := range w.collections {
			key := fmt.Sprintf("key-%d", w.written%keys)
			options := &gocb.UpsertOptions{}
			if w.written%5 == 0 {
				options.DurabilityLevel = gocb.DurabilityLevelMajority
			}
			if _, err := collection.Upsert(key, w.written, options); err != nil {
				t.Fatal(err)
			}
			w.documents[place{id, key}] = strconv.Itoa(w.written)
			if w.written%7 == 0 {
				if _, err := collection.Remove(key, nil); err != nil {
					t.Fatal(err)
				}
				delete(w.documents, place{id, key})
			}
		}
		w.written++
	}
}

// drop drops a collection, of which nothing is left.
func (w *writer) drop(t *testing.T, bucket *gocb.Bucket, id uint32) {
	t.Helper()
	collection := w.collections[id]
	if err := bucket.CollectionsV2().DropCollection(collection.ScopeName(), collection.Name(), nil); err != nil {
		t.Fatal(err)
	}
	delete(w.collections, id)
	maps.DeleteFunc(w.documents, func(at place, _ string) bool { return at.collection == id })
}

// has says whether a reader has what is in the collections that it asks for.
func (w *writer) has(reader *dcpReader) bool {
	reader.mutex.Lock()
	defer reader.mutex.Unlock()
	wanted := map[place]string{}
	for at, value := range w.documents {
		if len(reader.collections) == 0 || slices.Contains(reader.collections, at.collection) {
			wanted[at] = value
		}
	}
	return maps.EqualFunc(reader.documents, wanted, func(found document, value string) bool { return found.value == value })
}

// keys of each collection.
const keys = 200

// newWriter makes the collections. Beside the writer, their ids.
func newWriter(t *testing.T, all nodes, bucket *gocb.Bucket) (w *writer, orders, items uint32) {
	t.Helper()
	manager := bucket.CollectionsV2()
	if err := manager.CreateScope("shop", nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"orders", "items"} {
		if err := manager.CreateCollection("shop", name, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	ids := all[0].collections(t, "shop", 2)
	orders, items = ids["orders"], ids["items"]
	shop := bucket.Scope("shop")
	w = &writer{
		collections: map[uint32]*gocb.Collection{
			0: bucket.DefaultCollection(), orders: shop.Collection("orders"), items: shop.Collection("items"),
		},
		documents: map[place]string{},
	}
	for _, collection := range w.collections {
		until(t, "the collection can be used", func() bool {
			_, err := collection.Exists("key-0", nil)
			return err == nil
		})
	}
	return w, orders, items
}

func streamResumes(t *testing.T, all nodes) {
	bucket := connect(t, all)
	writer, orders, items := newWriter(t, all, bucket)
	reader, ofOrders := newReader(), newReader(orders)
	writer.write(t, 200)
	reader.connect(t, all, "first", 200).waitGone(t)
	writer.write(t, 200)
	connection := reader.connect(t, all, "second", 300)
	writer.write(t, 100)
	connection.waitGone(t)
	writer.drop(t, bucket, items)
	// What comes now is not in memory any more when it is asked for.
	writer.write(t, 200)
	for _, node := range all {
		node.signal(t, syscall.SIGTERM)
	}
	for _, node := range all {
		_ = node.command.Wait()
	}
	start(t, all...)
	for at := range writer.documents {
		until(t, "the writer is connected again", func() bool {
			_, err := writer.collections[at.collection].Exists(at.key, nil)
			return err == nil
		})
	}
	ofOrders.connect(t, all, "of orders", 40).waitGone(t)
	ofOrders.connect(t, all, "of orders again", 0)
	reader.connect(t, all, "third", 0)
	writer.write(t, 100)
	until(t, "the reader has what the bucket has", func() bool { return writer.has(reader) })
	until(t, "the reader has what the collection has", func() bool { return writer.has(ofOrders) })
	if ofOrders.byKeys == 0 {
		t.Error("nothing came in the order of keys")
	}
	for _, what := range append(reader.wrong, ofOrders.wrong...) {
		t.Error(what)
	}
}
