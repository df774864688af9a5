package cluster

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// A client of DCP gets everything once, though it goes away and comes back, and though what it missed is in files only.
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

func streamResumes(t *testing.T, all nodes) {
	collection := connect(t, all).DefaultCollection()
	wanted := map[string]string{}
	written := 0
	write := func(count int) {
		t.Helper()
		for range count {
			key := fmt.Sprintf("key-%d", written%400)
			options := &gocb.UpsertOptions{}
			if written%5 == 0 {
				options.DurabilityLevel = gocb.DurabilityLevelMajority
			}
			if _, err := collection.Upsert(key, written, options); err != nil {
				t.Fatal(err)
			}
			wanted[key] = strconv.Itoa(written)
			if written%7 == 0 {
				if _, err := collection.Remove(key, nil); err != nil {
					t.Fatal(err)
				}
				delete(wanted, key)
			}
			written++
		}
	}
	reader := newReader()
	write(500)
	reader.connect(t, all, "first", 200).waitGone(t)
	write(500)
	connection := reader.connect(t, all, "second", 300)
	write(300)
	connection.waitGone(t)
	// What comes now is not in memory any more when it is asked for.
	write(500)
	for _, node := range all {
		node.signal(t, syscall.SIGTERM)
	}
	for _, node := range all {
		_ = node.command.Wait()
	}
	start(t, all...)
	for key := range 400 {
		until(t, "the writer is connected again", func() bool {
			_, err := collection.Exists(fmt.Sprintf("key-%d", key), nil)
			return err == nil
		})
	}
	reader.connect(t, all, "third", 0)
	write(100)
	has := func() bool {
		reader.mutex.Lock()
		defer reader.mutex.Unlock()
		if len(reader.documents) != len(wanted) {
			return false
		}
		for key, value := range wanted {
			if reader.documents[key] != value {
				return false
			}
		}
		return true
	}
	until(t, "the reader has what the bucket has", has)
	for _, what := range reader.wrong {
		t.Error(what)
	}
}
