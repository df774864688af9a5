package cluster

import (
	"testing"

	"github.com/couchbase/gocb/v2"
)

// A server on its own keeps what it has persisted, whenever it is killed.
func TestOneNodeIsKilled(t *testing.T) {
	t.Parallel()
	all := one(t)
	load := startClients(t, all, gocb.DurabilityLevelMajorityAndPersistOnMaster, gocb.DurabilityLevelPersistToMajority)
	for range 3 {
		load.more(t, 300)
		load.mayFail(nodeLost)
		all[0].kill()
		start(t, all[0])
		load.areServed(t)
		load.isOver()
	}
	load.more(t, 300)
	load.finish(t)
}
