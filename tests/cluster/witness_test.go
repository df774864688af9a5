package cluster

import (
	"errors"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// startWitnessed starts two machines with a node and a member of etcd each. The third member is alone: the witness.
func startWitnessed(t *testing.T) divisible {
	t.Helper()
	return startDivisible(t, 2, "1s", debian, false)
}

func (d divisible) secondMachine() (*node, *etcd) { return d.all[1], d.store[1] }
func (d divisible) witness() *etcd                { return d.store[2] }

// tryWrite writes a document that no other client writes.
func (c *clients) tryWrite(level gocb.DurabilityLevel) error {
	_, err := c.collection.Upsert("tried", 1, &gocb.UpsertOptions{DurabilityLevel: level})
	return err
}

// hasOneCopy waits until plain writes are accepted and durable ones are refused.
func (d divisible) hasOneCopy(t *testing.T) {
	t.Helper()
	until(t, "a plain write", func() bool { return d.load.tryWrite(gocb.DurabilityLevelNone) == nil })
	for _, level := range allLevels {
		until(t, "a durable write is impossible", func() bool {
			return errors.Is(d.load.tryWrite(level), gocb.ErrDurabilityImpossible)
		})
	}
}

func TestEtcdOneOfTwoMachinesFails(t *testing.T) {
	t.Parallel()
	it := startWitnessed(t)
	node, member := it.secondMachine()
	it.load.mayFail(majorityLost)
	node.kill()
	member.kill()
	it.all.hasFailedOver(t, node)
	it.hasOneCopy(t)
	// The only member needs no promise of another one.
	it.witness().kill()
	it.all[0].servesBy(t, "promises")
	it.hasOneCopy(t)
	it.witness().start(t)
	member.start(t)
	start(t, node)
	it.recovered(t)
}

// Both nodes reach etcd, by the witness at least, so neither is lost.
func TestEtcdTwoMachinesLoseEachOther(t *testing.T) {
	t.Parallel()
	it := startWitnessed(t)
	it.load.mayFail(nodeLost)
	it.net.part(0, 1)
	it.net.part(firstMember, firstMember+1)
	for _, each := range it.all {
		each.renews(t)
	}
	it.load.stall(t)
	it.all.hasNoFailover(t)
	it.net.join(0, 1)
	it.net.join(firstMember, firstMember+1)
	it.load.areServed(t)
	it.load.isOver()
	it.load.more(t, 300)
	it.all.hasNoFailover(t)
	it.load.finish(t)
}

// The machine that is cut off acknowledges nothing that the other one does not know.
func TestEtcdOneOfTwoMachinesIsCutOff(t *testing.T) {
	t.Parallel()
	it := startWitnessed(t)
	node, _ := it.secondMachine()
	it.load.mayFail(majorityLost)
	for _, number := range []int{1, firstMember + 1} {
		it.net.cut(number)
	}
	it.all.hasFailedOver(t, node)
	it.hasOneCopy(t)
	for _, number := range []int{1, firstMember + 1} {
		it.net.mend(number)
	}
	it.recovered(t)
}

func TestEtcdTwoMachinesLoseTheirWitness(t *testing.T) {
	t.Parallel()
	it := startWitnessed(t)
	it.witness().kill()
	for _, each := range it.all {
		each.renews(t)
	}
	it.load.more(t, 500)
	it.all.hasNoFailover(t)

	// One machine alone cannot know whether the other one still serves.
	node, member := it.secondMachine()
	it.load.mayFail(majorityLost)
	node.kill()
	member.kill()
	it.all[0].servesBy(t, "none")
	it.all.hasNoFailover(t)
	it.witness().start(t)
	it.all.hasFailedOver(t, node)
	it.hasOneCopy(t)
	member.start(t)
	start(t, node)
	it.recovered(t)
}
