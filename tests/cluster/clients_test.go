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
	"testing"
	"time"

	"github.com/couchbase/gocb/v2"
)

const (
	writers = 12
	// Documents that all writers read and write.
	contested = 24
	// Longest time a client waits for an answer.
	operationTimeout = 3 * time.Second
	// The number of errors that a failed test shows.
	lastErrors = 20
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
}

// startClients begins a load of durable writes at these levels, and reads.
func startClients(t *testing.T, all nodes, levels ...gocb.DurabilityLevel) *clients {
	t.Helper()
	load := &clients{
		collection: connect(t, all).DefaultCollection(), levels: levels, history: newHistory(),
		inserted: map[string]int{}, errors: map[string]int{},
	}
	seed, err := strconv.ParseUint(os.Getenv("KEDGE_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("KEDGE_SEED=%d", seed)
	for writer := range writers {
		load.running.Add(1)
		go load.run(writer, rand.New(rand.NewPCG(seed, uint64(writer))))
	}
	t.Cleanup(load.stop)
	return load
}

func (c *clients) stop() {
	c.stopped.Store(true)
	c.running.Wait()
}

func (c *clients) run(writer int, random *rand.Rand) {
	defer c.running.Done()
	for count := 0; !c.stopped.Load(); count++ {
		key := fmt.Sprintf("contested-%d", random.IntN(contested))
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
			c.insert(fmt.Sprintf("own-%d-%d", writer, count), level)
		}
	}
}

func (c *clients) read(writer int, key string) {
	call := c.history.now()
	value, err := c.get(key)
	if err == nil {
		c.history.saw(writer, key, value, call)
	} else {
		c.failed("read", err)
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
	call := c.history.now()
	switch err := ask(); {
	case err == nil:
		c.history.wrote(writer, key, value, call)
		c.acknowledged.Add(1)
	case value == 0 && errors.Is(err, gocb.ErrDocumentNotFound):
		c.history.saw(writer, key, 0, call)
	case isOneOf(err, refusals):
		c.failed("refused write", err)
	default:
		c.history.mayHaveWritten(writer, key, value, call)
		c.ambiguous.Add(1)
		c.failed("write", err)
	}
}

// insert makes a document that nobody writes again, so that it must be there from then on.
func (c *clients) insert(key string, level gocb.DurabilityLevel) {
	value := int(c.values.Add(1))
	_, err := c.collection.Insert(key, value, &gocb.InsertOptions{DurabilityLevel: level})
	if err != nil {
		c.failed("insert", err)
		return
	}
	c.acknowledged.Add(1)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.inserted[key] = value
}

// failed counts an error by its kind: what it says after the first "|" are details.
func (c *clients) failed(what string, err error) {
	var kind error
	for next := err; next != nil; next = errors.Unwrap(next) {
		kind = next
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.errors[fmt.Sprintf("%s: %v", what, kind)]++
	c.last = append(c.last, fmt.Sprintf("%s %s: %v", time.Now().Format(time.StampMilli), what, err))
	if len(c.last) > lastErrors {
		c.last = c.last[1:]
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

// finish fails the test if anything was seen that may not be.
func (c *clients) finish(t *testing.T) {
	t.Helper()
	for _, lost := range c.lost(t) {
		t.Error(lost)
	}
	c.history.judge(t)
}

// sawNoError fails the test if clients saw an error that the SDK did not hide.
func (c *clients) sawNoError(t *testing.T) {
	t.Helper()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if len(c.errors) > 0 {
		t.Errorf("clients saw errors: %v; the last ones:\n%s", c.errors, strings.Join(c.last, "\n"))
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
		key := fmt.Sprintf("contested-%d", number)
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
