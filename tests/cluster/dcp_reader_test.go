package cluster

import (
	"errors"
	"fmt"
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

// dcpReader is a client of DCP that others wrote, with what it has seen so far. What it remembers outlives its
// connections.
type dcpReader struct {
	mutex     sync.Mutex
	positions map[uint16]position
	// Values as JSON; a document that is not there, or that was deleted, has none.
	documents map[string]string
	wrong     []string
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
}

func (c *dcpConnection) isGone() bool { return c.eventsMax > 0 && c.events >= c.eventsMax }

func newReader() *dcpReader {
	return &dcpReader{positions: map[uint16]position{}, documents: map[string]string{}}
}

func (r *dcpConnection) change(vb uint16, seqno uint64, apply func()) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.isGone() {
		return
	}
	at, marker := r.positions[vb], r.markers[vb]
	if seqno <= at.seqno {
		r.wrong = append(r.wrong, fmt.Sprintf("vb:%d: seqno %d after %d", vb, seqno, at.seqno))
	}
	if seqno < marker.StartSeqNo || seqno > marker.EndSeqNo {
		r.wrong = append(r.wrong, fmt.Sprintf("vb:%d: seqno %d outside of %+v", vb, seqno, marker))
	}
	at.seqno, at.snapshotStart, at.snapshotEnd = seqno, marker.StartSeqNo, marker.EndSeqNo
	r.positions[vb] = at
	if apply != nil {
		r.events++
		apply()
	}
}

func (r *dcpConnection) SnapshotMarker(marker gocbcore.DcpSnapshotMarker) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.markers[marker.VbID] = marker
}

func (r *dcpConnection) Mutation(it gocbcore.DcpMutation) {
	r.change(it.VbID, it.SeqNo, func() { r.documents[string(it.Key)] = string(it.Value) })
}

func (r *dcpConnection) Deletion(it gocbcore.DcpDeletion) {
	r.change(it.VbID, it.SeqNo, func() { delete(r.documents, string(it.Key)) })
}

func (r *dcpConnection) Expiration(it gocbcore.DcpExpiration) {
	r.change(it.VbID, it.SeqNo, func() { delete(r.documents, string(it.Key)) })
}

func (r *dcpConnection) SeqNoAdvanced(it gocbcore.DcpSeqNoAdvanced) { r.change(it.VbID, it.SeqNo, nil) }

func (r *dcpConnection) CreateCollection(it gocbcore.DcpCollectionCreation) {
	r.change(it.VbID, it.SeqNo, nil)
}
func (r *dcpConnection) DeleteCollection(it gocbcore.DcpCollectionDeletion) {
	r.change(it.VbID, it.SeqNo, nil)
}
func (r *dcpConnection) FlushCollection(it gocbcore.DcpCollectionFlush) {
	r.change(it.VbID, it.SeqNo, nil)
}
func (r *dcpConnection) CreateScope(it gocbcore.DcpScopeCreation) { r.change(it.VbID, it.SeqNo, nil) }
func (r *dcpConnection) DeleteScope(it gocbcore.DcpScopeDeletion) { r.change(it.VbID, it.SeqNo, nil) }
func (r *dcpConnection) ModifyCollection(it gocbcore.DcpCollectionModification) {
	r.change(it.VbID, it.SeqNo, nil)
}
func (r *dcpConnection) OSOSnapshot(gocbcore.DcpOSOSnapshot) {}
func (r *dcpConnection) End(gocbcore.DcpStreamEnd, error)    {}

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
		IoConfig:  gocbcore.IoConfig{UseCollections: true},
		DCPConfig: gocbcore.DCPConfig{UseExpiryOpcode: true, BufferSize: 64 << 10},
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
	connection := &dcpConnection{dcpReader: r, agent: agent, close: close, eventsMax: eventsMax, markers: map[uint16]gocbcore.DcpSnapshotMarker{}}
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
	answer := make(chan error, 1)
	_, err := r.agent.OpenStream(vb, memd.DcpStreamAddFlagActiveOnly, at.uuid, gocbcore.SeqNo(at.seqno), endless,
		gocbcore.SeqNo(at.snapshotStart), gocbcore.SeqNo(at.snapshotEnd), r, gocbcore.OpenStreamOptions{},
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
