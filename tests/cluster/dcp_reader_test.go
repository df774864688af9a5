package cluster

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/couchbase/gocbcore/v10"
	"github.com/couchbase/gocbcore/v10/memd"
)

// position is what a reader has to remember of a vBucket to go on where it was.
type position struct {
	uuid                              gocbcore.VbUUID
	seqno, snapshotStart, snapshotEnd uint64
}

// place is where a document is: two collections may have the same key.
type place struct {
	collection uint32
	key        string
}

// document is what a reader has of one.
type document struct {
	vb uint16
	// JSON.
	value string
}

// dcpReader is a client of DCP that others wrote, with what it has seen so far. What it remembers outlives its
// connections.
type dcpReader struct {
	// The collections it asks for, all if there are none. Of some it takes what is on disk in the order of keys.
	collections []uint32
	mutex       sync.Mutex
	positions   map[uint16]position
	// One that was deleted is not there.
	documents map[place]document
	// vBuckets of which something came in the order of keys.
	byKeys int
	wrong  []string
}

// dcpConnection is one connection of a reader to each node. Once it is gone, whatever still comes is not looked at.
type dcpConnection struct {
	*dcpReader
	agent *gocbcore.DCPAgent
	close func() error
	// Documents and deletions that came, and after how many it is gone; 0 for never.
	events, eventsMax int
	// The last of each vBucket. It becomes part of the position with the first change in it.
	markers map[uint16]gocbcore.DcpSnapshotMarker
	// The highest seqno so far of what comes in the order of keys. It becomes the position at the end, and if that does
	// not come, all of it has to come again.
	unordered map[uint16]uint64
}

func (c *dcpConnection) isGone() bool { return c.eventsMax > 0 && c.events >= c.eventsMax }

func newReader(collections ...uint32) *dcpReader {
	return &dcpReader{collections: collections, positions: map[uint16]position{}, documents: map[place]document{}}
}

func (r *dcpConnection) change(vb uint16, seqno uint64, apply func()) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.isGone() {
		return
	}
	if highest, ok := r.unordered[vb]; ok {
		r.unordered[vb] = max(highest, seqno)
	} else {
		r.advance(vb, seqno)
	}
	if apply != nil {
		r.events++
		apply()
	}
}

// advance moves the position of a vBucket to a change that comes in the order of seqnos.
func (r *dcpConnection) advance(vb uint16, seqno uint64) {
	at, marker := r.positions[vb], r.markers[vb]
	if seqno <= at.seqno {
		r.wrong = append(r.wrong, fmt.Sprintf("vb:%d: seqno %d after %d", vb, seqno, at.seqno))
	}
	if seqno < marker.StartSeqNo || seqno > marker.EndSeqNo {
		r.wrong = append(r.wrong, fmt.Sprintf("vb:%d: seqno %d outside of %+v", vb, seqno, marker))
	}
	at.seqno, at.snapshotStart, at.snapshotEnd = seqno, marker.StartSeqNo, marker.EndSeqNo
	r.positions[vb] = at
}

// OSOSnapshot is the start or the end of what comes in the order of keys.
func (r *dcpConnection) OSOSnapshot(it gocbcore.DcpOSOSnapshot) {
	const start = 1
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.isGone() {
		return
	}
	if it.SnapshotType == start {
		r.unordered[it.VbID] = 0
		r.byKeys++
		return
	}
	highest := r.unordered[it.VbID]
	delete(r.unordered, it.VbID)
	r.positions[it.VbID] = position{
		uuid: r.positions[it.VbID].uuid, seqno: highest, snapshotStart: highest, snapshotEnd: highest,
	}
}

func (r *dcpConnection) SnapshotMarker(marker gocbcore.DcpSnapshotMarker) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.markers[marker.VbID] = marker
}

func (r *dcpConnection) Mutation(it gocbcore.DcpMutation) {
	at, value := place{it.CollectionID, string(it.Key)}, string(it.Value)
	r.change(it.VbID, it.SeqNo, func() { r.documents[at] = document{it.VbID, value} })
}

func (r *dcpConnection) Deletion(it gocbcore.DcpDeletion) {
	at := place{it.CollectionID, string(it.Key)}
	r.change(it.VbID, it.SeqNo, func() { delete(r.documents, at) })
}

func (r *dcpConnection) Expiration(it gocbcore.DcpExpiration) {
	at := place{it.CollectionID, string(it.Key)}
	r.change(it.VbID, it.SeqNo, func() { delete(r.documents, at) })
}

func (r *dcpConnection) SeqNoAdvanced(it gocbcore.DcpSeqNoAdvanced) { r.change(it.VbID, it.SeqNo, nil) }

func (r *dcpConnection) CreateCollection(it gocbcore.DcpCollectionCreation) {
	r.change(it.VbID, it.SeqNo, nil)
}

// DeleteCollection takes the documents of the vBucket with the collection: there are no deletions of them.
func (r *dcpConnection) DeleteCollection(it gocbcore.DcpCollectionDeletion) {
	r.change(it.VbID, it.SeqNo, func() {
		maps.DeleteFunc(r.documents, func(at place, document document) bool {
			return at.collection == it.CollectionID && document.vb == it.VbID
		})
	})
}

func (r *dcpConnection) FlushCollection(it gocbcore.DcpCollectionFlush) {
	r.change(it.VbID, it.SeqNo, nil)
}
func (r *dcpConnection) CreateScope(it gocbcore.DcpScopeCreation) { r.change(it.VbID, it.SeqNo, nil) }
func (r *dcpConnection) DeleteScope(it gocbcore.DcpScopeDeletion) { r.change(it.VbID, it.SeqNo, nil) }
func (r *dcpConnection) ModifyCollection(it gocbcore.DcpCollectionModification) {
	r.change(it.VbID, it.SeqNo, nil)
}
func (r *dcpConnection) End(gocbcore.DcpStreamEnd, error) {}

// connect opens a connection to each node, and a stream without end for each vBucket from where the reader was. After
// `eventsMax` documents and deletions the reader is gone; 0 for never.
func (r *dcpReader) connect(t *testing.T, all nodes, name string, eventsMax int) *dcpConnection {
	t.Helper()
	config := gocbcore.DCPAgentConfig{
		BucketName:       bucketName,
		EnableCCCPPoller: true,
		SecurityConfig: gocbcore.SecurityConfig{
			Auth: gocbcore.PasswordAuthProvider{Username: user, Password: password},
		},
		IoConfig: gocbcore.IoConfig{UseCollections: true},
		DCPConfig: gocbcore.DCPConfig{
			UseExpiryOpcode: true, BufferSize: 64 << 10, UseOSOBackfill: len(r.collections) > 0,
		},
	}
	for _, node := range all {
		config.SeedConfig.MemdAddrs = append(config.SeedConfig.MemdAddrs, fmt.Sprintf("%s:%d", node.host, node.kv))
	}
	agent, err := gocbcore.CreateDcpAgent(&config, name, memd.DcpOpenFlagProducer)
	if err != nil {
		t.Fatal(err)
	}
	close := sync.OnceValue(agent.Close)
	t.Cleanup(func() { _ = close() })
	answer := make(chan error, 1)
	_, err = agent.WaitUntilReady(time.Now().Add(patience), gocbcore.WaitUntilReadyOptions{},
		func(_ *gocbcore.WaitUntilReadyResult, err error) { answer <- err })
	if err := errors.Join(err, <-answer); err != nil {
		t.Fatal(err)
	}
	connection := &dcpConnection{
		dcpReader: r, agent: agent, close: close, eventsMax: eventsMax,
		markers: map[uint16]gocbcore.DcpSnapshotMarker{}, unordered: map[uint16]uint64{},
	}
	for vb := range vbuckets {
		connection.open(t, uint16(vb))
	}
	return connection
}

func (r *dcpConnection) open(t *testing.T, vb uint16) {
	t.Helper()
	r.mutex.Lock()
	at := r.positions[vb]
	r.mutex.Unlock()
	const endless = gocbcore.SeqNo(0xffffffffffffffff)
	options := gocbcore.OpenStreamOptions{}
	if len(r.collections) > 0 {
		options.FilterOptions = &gocbcore.OpenStreamFilterOptions{CollectionIDs: r.collections}
	}
	answer := make(chan error, 1)
	_, err := r.agent.OpenStream(vb, memd.DcpStreamAddFlagActiveOnly, at.uuid, gocbcore.SeqNo(at.seqno), endless,
		gocbcore.SeqNo(at.snapshotStart), gocbcore.SeqNo(at.snapshotEnd), r, options,
		func(history []gocbcore.FailoverEntry, err error) {
			if err == nil {
				r.mutex.Lock()
				at := r.positions[vb]
				at.uuid = history[0].VbUUID
				r.positions[vb] = at
				r.mutex.Unlock()
			}
			answer <- err
		})
	if err != nil {
		t.Fatalf("vb:%d: %v", vb, err)
	}
	if err := <-answer; err != nil {
		t.Fatalf("vb:%d from %+v: %v", vb, at, err)
	}
}

// waitGone waits until the reader is gone and closes its connections.
func (r *dcpConnection) waitGone(t *testing.T) {
	t.Helper()
	until(t, "the reader has had enough", func() bool {
		r.mutex.Lock()
		defer r.mutex.Unlock()
		return r.isGone()
	})
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}
