package sdk

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

// What another process that runs this test program is to stage: a connection string, and the keys of what to insert, to
// replace and to remove, with spaces between them.
const stageVariable = "KEDGE_TEST_STAGE"

// A transaction that takes longer has expired, and anybody may take back what it has staged.
const lostAfter = 2 * time.Second

// stageAndWait stages changes in a transaction, says so, and never commits: it waits until it is killed.
func stageAndWait(arguments string) error {
	words := strings.Fields(arguments)
	// One that looks for what others have lost has a part of the records to look at, which others leave to it for a while.
	cluster, err := gocb.Connect(words[0], gocb.ClusterOptions{
		Username: user,
		Password: password,
		TransactionsConfig: gocb.TransactionsConfig{
			CleanupConfig: gocb.TransactionsCleanupConfig{DisableLostAttemptCleanup: true},
		},
	})
	if err != nil {
		return err
	}
	documents := cluster.Bucket(bucketName).DefaultCollection()
	_, err = cluster.Transactions().Run(func(ctx *gocb.TransactionAttemptContext) error {
		if err := change(ctx, documents, words[1], words[2], words[3]); err != nil {
			return err
		}
		fmt.Println("staged")
		select {}
	}, &gocb.TransactionOptions{Timeout: lostAfter})
	return err
}

// killedWhileStaged has another process stage an insert, a replacement and a removal, and kills it before it commits.
func killedWhileStaged(t *testing.T, to, inserted, replaced, removed string) {
	t.Helper()
	child := exec.Command(must(os.Executable())(t))
	child.Env = append(os.Environ(), stageVariable+"="+strings.Join([]string{to, inserted, replaced, removed}, " "))
	child.Stderr = os.Stderr
	stdout := must(child.StdoutPipe())(t)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	_ = child.Process.Kill()
	_ = child.Wait()
	if line != "staged\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// Others do not see what a client staged that is lost then, and get past it.
func TestWhatALostClientStaged(t *testing.T) {
	t.Run("one node", func(t *testing.T) { getsPastALostClient(t, ownServer(t).connectionString()) })
	t.Run("two nodes", func(t *testing.T) { getsPastALostClient(t, newNodes(t, 2).connectionString()) })
}

func getsPastALostClient(t *testing.T, to string) {
	own := must(gocb.Connect(to, gocb.ClusterOptions{
		Username: user,
		Password: password,
		TransactionsConfig: gocb.TransactionsConfig{
			CleanupConfig: gocb.TransactionsCleanupConfig{
				// It looks so often for what others have lost.
				CleanupWindow: time.Second,
				CleanupCollections: []gocb.TransactionKeyspace{{
					BucketName: bucketName, ScopeName: "_default", CollectionName: "_default",
				}},
			},
		},
	}))(t)
	t.Cleanup(func() { _ = own.Close(nil) })
	bucket := own.Bucket(bucketName)
	if err := bucket.WaitUntilReady(readyTimeout, nil); err != nil {
		t.Fatal(err)
	}
	documents := bucket.DefaultCollection()
	// Keys without what separates them on their way to the other process.
	inserted, replaced, removed := newName(t, "i-"), newName(t, "r-"), newName(t, "d-")
	must(documents.Upsert(replaced, counted{1}, nil))(t)
	must(documents.Upsert(removed, counted{2}, nil))(t)
	killedWhileStaged(t, to, inserted, replaced, removed)

	if must(documents.Exists(inserted, nil))(t).Exists() {
		t.Fatal("others see what is staged")
	}
	wantContent(t, documents, replaced, counted{1})
	wantContent(t, documents, removed, counted{2})
	// It conflicts with what is staged until that has expired.
	err := transact(own, func(ctx *gocb.TransactionAttemptContext) error {
		for key, n := range map[string]int{replaced: 100, removed: 200} {
			found, err := ctx.Get(documents, key)
			if err != nil {
				return err
			}
			if _, err := ctx.Replace(found, counted{n}); err != nil {
				return err
			}
		}
		_, err := ctx.Insert(documents, inserted, counted{300})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, n := range map[string]int{inserted: 300, replaced: 100, removed: 200} {
		wantContent(t, documents, key, counted{n})
		wantNothingStaged(t, documents, key)
	}
}
