package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
	"github.com/couchbase/gocbcore/v10"
)

const (
	writers = 12
	// Documents that all writers read and write.
	contested = 24
	// Longest time a client waits for an answer.
	operationTimeout = 3 * time.Second
	// The number of errors that a failed test shows.
	lastErrors = 20
	// Longest time from the change of a map until clients follow it, on a busy machine: the SDK asks every 2.5 s, and waits 3 s
	// for the answer of a node that hangs, before it asks another one (gocbcore/agent.go).
	mapDelay = 6 * time.Second
	// The number of writes that have to succeed after the last failure of a test.
	writesAfter = 300
)

var allLevels = []gocb.DurabilityLevel{
	gocb.DurabilityLevelMajority,
	gocb.DurabilityLevelMajorityAndPersistOnMaster,
	gocb.DurabilityLevelPersistToMajority,
}

// Errors after which the document is as it was.
var refusals = []error{
	gocb.ErrDurableWriteInProgress, gocb.ErrDurableWriteReCommitInProgress, gocb.ErrDurabilityImpossible,
	gocb.ErrDocumentExists, gocb.ErrDocumentNotFound, gocb.ErrCircuitBreakerOpen,
}

// Errors of operations on vBuckets whose node is gone, until another node serves them. gocbcore/retry.go says what the SDK
// repeats until the timeout of the operation: reads, writes that were not sent, and those that the server refused to execute.
// A write that was sent may have been executed, so its client has to know: the connection broke, or there was no answer in
// time, or the server does not know how many copies have it.
// A connection may break while the SDK writes to it; then even a read can end with the error of the system.
var nodeLost = []error{
	gocb.ErrTimeout, gocbcore.ErrSocketClosed, gocb.ErrDurabilityAmbiguous, syscall.ECONNRESET, syscall.EPIPE,
}

// The same, where the remaining copies of a chain are no majority.
var majorityLost = append([]error{gocb.ErrDurabilityImpossible}, nodeLost...)

func isOneOf(err error, known []error) bool {
	for _, each := range known {
		if errors.Is(err, each) {
			return true
		}
	}
	return false
}

func connectCluster(t *testing.T, all nodes) *gocb.Cluster {
	t.Helper()
	cluster, err := gocb.Connect(all.connectionString(), gocb.ClusterOptions{
		Username: user, Password: password,
		TimeoutsConfig: gocb.TimeoutsConfig{
			ConnectTimeout: patience, KVTimeout: operationTimeout, KVDurableTimeout: operationTimeout,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close(nil) })
	return cluster
}

func connect(t *testing.T, all nodes) *gocb.Bucket {
	t.Helper()
	bucket := connectCluster(t, all).Bucket(bucketName)
	if err := bucket.WaitUntilReady(patience, nil); err != nil {
		t.Fatal(err)
	}
	return bucket
}

// clients read and write until they are stopped, and remember what they were told.
type clients struct {
	collection *gocb.Collection
	levels     []gocb.DurabilityLevel
	history    *history
	stopped    atomic.Bool
	running    sync.WaitGroup
	values     atomic.Int64
	// Acknowledged durable writes, and answers that left open what became of one.
	acknowledged, ambiguous atomic.Int64

	mutex    sync.Mutex
	inserted map[string]int
	errors   map[string]int
	// The newest errors, with all that they say.
	last []string
	// Errors that a client may see now, and those of operations that began before the last failure was over.
	allowed, before []error
	over            time.Time
	// The number of errors that no client may see, and the first of them.
	forbidden      int
	firstForbidden []string
	// Acknowledged writes that began after the last failure was over.
	after int
	// When the last acknowledged write of a contested document began.
	newest map[string]time.Time
}

// startClients begins a load of durable writes at these levels, and reads.
func startClients(t *testing.T, all nodes, levels ...gocb.DurabilityLevel) *clients {
	t.Helper()
	load := &clients{
		collection: connect(t, all).DefaultCollection(), levels: levels, history: newHistory(),
		inserted: map[string]int{}, errors: map[string]int{}, newest: map[string]time.Time{},
	}
	seed, err := strconv.ParseUint(os.Getenv("KEDGE_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("KEDGE_SEED=%d", seed)
	load.begin(seed)
	t.Cleanup(load.stop)
	return load
}

// begin starts the clients, or starts them again.
func (c *clients) begin(seed uint64) {
	c.stopped.Store(false)
	for writer := range writers {
		c.running.Add(1)
		go c.run(writer, rand.New(rand.NewPCG(seed, uint64(writer))))
	}
}

// mayFail allows these errors from now on, until [clients.isOver]. Without it a client may see none.
func (c *clients) mayFail(errors []error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.allowed = errors
}

// isOver ends what [clients.mayFail] began, if anything. Operations that began before it may fail still, as may those that begin before the
// clients have the new map. They end within the timeout of an operation.
func (c *clients) isOver() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.allowed == nil {
		return
	}
	c.allowed, c.before, c.over, c.after = nil, c.allowed, time.Now().Add(mapDelay), 0
}

// areServed waits until each contested document was written by an operation that began after the call: clients have connected
// to all nodes again.
func (c *clients) areServed(t *testing.T) {
	t.Helper()
	began := time.Now()
	defer c.explain(t)
	until(t, "all documents are written", func() bool {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		for number := range contested {
			if !c.newest[contestedKey(number)].After(began) {
				return false
			}
		}
		return true
	})
}

func contestedKey(number int) string { return fmt.Sprintf("contested-%d", number) }

func (c *clients) stop() {
	c.stopped.Store(true)
	c.running.Wait()
}

func (c *clients) run(writer int, random *rand.Rand) {
	defer c.running.Done()
	for !c.stopped.Load() {
		key := contestedKey(random.IntN(contested))
		level := c.levels[random.IntN(len(c.levels))]
		switch dice := random.IntN(10); {
		case dice < 3:
			c.read(writer, key)
		case dice < 7:
			value := int(c.values.Add(1))
			c.write(writer, key, value, func() error {
				_, err := c.collection.Upsert(key, value, &gocb.UpsertOptions{DurabilityLevel: level})
				return err
			})
		case dice < 8:
			c.write(writer, key, 0, func() error {
				_, err := c.collection.Remove(key, &gocb.RemoveOptions{DurabilityLevel: level})
				return err
			})
		default:
			c.insert(level)
		}
	}
}

func (c *clients) read(writer int, key string) {
	call, began := c.history.now(), time.Now()
	value, err := c.get(key)
	if err == nil {
		c.history.saw(writer, key, value, call)
	} else {
		c.failed("read", began, err)
	}
}

// get returns 0 for no document.
func (c *clients) get(key string) (int, error) {
	value := 0
	found, err := c.collection.Get(key, nil)
	if errors.Is(err, gocb.ErrDocumentNotFound) {
		return 0, nil
	}
	if err == nil {
		err = found.Content(&value)
	}
	return value, err
}

func (c *clients) write(writer int, key string, value int, ask func() error) {
	call, began := c.history.now(), time.Now()
	switch err := ask(); {
	case err == nil:
		c.history.wrote(writer, key, value, call)
		c.wasAcknowledged(key, began)
	case value == 0 && errors.Is(err, gocb.ErrDocumentNotFound):
		c.history.saw(writer, key, 0, call)
	case isOneOf(err, refusals):
		c.failed("refused write", began, err)
	default:
		c.history.mayHaveWritten(writer, key, value, call)
		c.ambiguous.Add(1)
		c.failed("write", began, err)
	}
}

// insert makes a document that nobody writes again, so that it must be there from then on.
func (c *clients) insert(level gocb.DurabilityLevel) {
	began := time.Now()
	value := int(c.values.Add(1))
	key := fmt.Sprintf("own-%d", value)
	_, err := c.collection.Insert(key, value, &gocb.InsertOptions{DurabilityLevel: level})
	if err != nil {
		c.failed("insert", began, err)
		return
	}
	c.wasAcknowledged("", began)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.inserted[key] = value
}

// wasAcknowledged counts a write, of a contested document if there is a key.
func (c *clients) wasAcknowledged(key string, began time.Time) {
	c.acknowledged.Add(1)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if began.After(c.over) {
		c.after++
	}
	if key != "" && began.After(c.newest[key]) {
		c.newest[key] = began
	}
}

// failed counts an error by its kind: what it says after the first "|" are details.
func (c *clients) failed(what string, began time.Time, err error) {
	var kind error
	for next := err; next != nil; next = errors.Unwrap(next) {
		kind = next
	}
	text := fmt.Sprintf("%s %s: %v", time.Now().Format(time.StampMilli), what, err)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.errors[fmt.Sprintf("%s: %v", what, kind)]++
	c.last = append(c.last, text)
	if len(c.last) > lastErrors {
		c.last = c.last[1:]
	}
	if isOneOf(err, c.allowed) || began.Before(c.over) && isOneOf(err, c.before) {
		return
	}
	c.forbidden++
	if len(c.firstForbidden) < lastErrors {
		began := began.Format(time.StampMilli)
		c.firstForbidden = append(c.firstForbidden, fmt.Sprintf("%s, begun %s", text, began))
	}
}

// more waits until that many further durable writes were acknowledged.
func (c *clients) more(t *testing.T, count int64) {
	t.Helper()
	wanted := c.acknowledged.Load() + count
	defer c.explain(t)
	until(t, fmt.Sprintf("%d more acknowledged writes", count), func() bool { return c.acknowledged.Load() >= wanted })
}

// stall waits until a client has waited for an answer in vain.
func (c *clients) stall(t *testing.T) {
	t.Helper()
	before := c.ambiguous.Load()
	until(t, "a write is left open", func() bool { return c.ambiguous.Load() > before })
}

// finish fails the test if anything was seen that may not be: a lost write, a history that is not linearizable, an error that
// the SDK has to hide, or any error of an operation that began after the last failure was over.
func (c *clients) finish(t *testing.T) {
	t.Helper()
	c.mutex.Lock()
	if c.allowed != nil {
		t.Error("clients may still see errors: the test has to say when its failure is over")
	}
	c.mutex.Unlock()
	defer c.explain(t)
	until(t, "writes that began when all was over", func() bool {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return c.after >= writesAfter
	})
	for _, lost := range c.lost(t) {
		t.Error(lost)
	}
	c.history.judge(t)
	if c.forbidden > 0 {
		t.Errorf("clients saw %d errors that they may not see, of %v; the first ones:\n%s",
			c.forbidden, c.errors, strings.Join(c.firstForbidden, "\n"))
	}
}

// explain logs the last errors of a test that failed.
func (c *clients) explain(t *testing.T) {
	t.Helper()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if t.Failed() {
		t.Logf("the last errors:\n%s", strings.Join(c.last, "\n"))
	}
}

// lost stops the load, reads all documents, and says which were acknowledged and are not there.
func (c *clients) lost(t *testing.T) (lost []string) {
	t.Helper()
	c.stop()
	t.Logf("%d acknowledged writes, %d ambiguous; errors: %v", c.acknowledged.Load(), c.ambiguous.Load(), c.errors)
	for number := range contested {
		key := contestedKey(number)
		call := c.history.now()
		c.history.saw(writers, key, c.mustGet(t, key), call)
	}
	for key, wanted := range c.inserted {
		if value := c.mustGet(t, key); value != wanted {
			lost = append(lost, fmt.Sprintf("%s was acknowledged with %d and is %d", key, wanted, value))
		}
	}
	return lost
}

func (c *clients) mustGet(t *testing.T, key string) (value int) {
	t.Helper()
	until(t, key+" can be read", func() bool {
		var err error
		value, err = c.get(key)
		return err == nil
	})
	return value
}
