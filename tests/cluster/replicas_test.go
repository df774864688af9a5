package cluster

import (
	"fmt"
	"testing"

	"github.com/couchbase/gocb/v2"
)

// ask changes the number of replicas as an application does.
func ask(t *testing.T, all nodes, replicas uint32) {
	t.Helper()
	buckets := connectCluster(t, all).Buckets()
	settings, err := buckets.GetBucket(bucketName, nil)
	if err != nil {
		t.Fatal(err)
	}
	settings.NumReplicas = replicas
	until(t, fmt.Sprintf("%d replicas are taken as a setting", replicas), func() bool {
		return buckets.UpdateBucket(*settings, nil) == nil
	})
}

func waitReplicas(t *testing.T, asked *node, replicas int) {
	t.Helper()
	until(t, fmt.Sprintf("there are %d replicas", replicas), func() bool {
		status := asked.status(t)
		return status.Replicas == replicas && status.WantedReplicas == replicas && status.MissingCopies == 0
	})
}

// There are more and fewer replicas while clients write, and what they were told survives the loss of any node.
func TestTheNumberOfReplicasChangesUnderLoad(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 3, 1, nil)
	load := startClients(t, all, allLevels...)
	load.more(t, 300)
	for round, replicas := range []int{2, 1, 0, 2, 0, 1} {
		ask(t, all, uint32(replicas))
		waitReplicas(t, all[round%3], replicas)
		load.more(t, 200)
		if replicas == 0 {
			continue
		}
		dies := all[round%3]
		asked := all[(round+1)%3]
		load.mayFail(majorityLost)
		dies.kill()
		until(t, "it is failed over", func() bool { return asked.tool(t, "failover", dies.name) == nil })
		load.more(t, 200)
		start(t, dies)
		nodes{asked}.recover(t, dies)
		nodes{asked}.caughtUp(t)
		load.isOver()
		load.more(t, 200)
	}
	load.finish(t)
}

// A node dies while copies are made: the one that sees to it, or another.
func TestANodeDiesWhileTheNumberOfReplicasChanges(t *testing.T) {
	for name, index := range map[string]int{"the one that sees to it": 0, "another": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := clusterOf(t, 3, 1, nil)
			load := startClients(t, all, allLevels...)
			load.more(t, 300)
			dies, asked := all[index], all[1]
			for replicas := 2; replicas >= 1; replicas-- {
				ask(t, all, uint32(replicas))
				load.mayFail(majorityLost)
				dies.kill()
				until(t, "it is failed over", func() bool { return asked.tool(t, "failover", dies.name) == nil })
				load.more(t, 200)
				start(t, dies)
				nodes{asked}.recover(t, dies)
				waitReplicas(t, asked, replicas)
				load.isOver()
				load.more(t, 200)
			}
			load.finish(t)
		})
	}
}

// Clients hear of the replicas that there are: with too few of them a level cannot be.
func TestClientsHearOfTheNumberOfReplicas(t *testing.T) {
	t.Parallel()
	all := clusterOf(t, 2, 1, nil)
	collection := connect(t, all).DefaultCollection()
	upsert := func(level gocb.DurabilityLevel) error {
		_, err := collection.Upsert("a", 1, &gocb.UpsertOptions{DurabilityLevel: level})
		return err
	}
	for _, replicas := range []int{0, 1} {
		ask(t, all, uint32(replicas))
		waitReplicas(t, all[0], replicas)
		for _, level := range allLevels {
			until(t, "a durable write is done", func() bool { return upsert(level) == nil })
		}
		until(t, "as many replicas answer", func() bool {
			found, err := collection.GetAllReplicas("a", nil)
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			for one := found.Next(); one != nil; one = found.Next() {
				count++
			}
			return count == replicas+1
		})
	}
}
