package cluster

import "testing"

// has waits until these nodes, and no others, have vBuckets.
func (all nodes) has(t *testing.T, asked *node) {
	t.Helper()
	until(t, "the vBuckets are on the members", func() bool {
		status := asked.status(t)
		found := map[string]int{}
		for _, each := range status.Nodes {
			if each.Active > 0 {
				found[each.Node] = each.Active
			}
		}
		for _, each := range all {
			if found[each.name] == 0 {
				return false
			}
		}
		return len(found) == len(all) && status.MissingCopies == 0
	})
}

// Nodes are added, swapped for others and removed under load. Clients see no error, and lose nothing.
func TestEtcdNodesAreAddedSwappedAndRemovedUnderLoad(t *testing.T) {
	t.Parallel()
	store, directory := inEtcd(t, current), t.TempDir()
	all := clusterIn(t, store, directory, 3, 1, nil)
	added := nodes{newMember(t, store, directory, 3, nil), newMember(t, store, directory, 4, nil)}
	added.endWith(t)
	load := startClients(t, all, allLevels...)
	load.more(t, 300)
	rebalance := func(words ...string) {
		t.Helper()
		if err := all[0].tool(t, append([]string{"rebalance", "--wait"}, words...)...); err != nil {
			t.Fatal(err)
		}
		load.more(t, 300)
	}
	add := func(each *node) {
		t.Helper()
		each.begin(t)
		until(t, each.name+" is added", func() bool { return all[0].tool(t, "add", each.name) == nil })
		each.waitReady(t)
	}
	add(added[0])
	rebalance()
	nodes{all[0], all[1], all[2], added[0]}.has(t, all[0])
	add(added[1])
	rebalance("--remove", all[2].name)
	nodes{all[0], all[1], added[0], added[1]}.has(t, all[0])
	rebalance("--remove", added[0].name, "--remove", added[1].name)
	all[:2].has(t, all[0])
	load.finish(t)
}

// A node dies in the midst of a rebalance: an old one, or one that was added. It is failed over, the rebalance goes on without
// it, and nothing is lost.
func TestEtcdANodeDiesWhileTheClusterIsRebalanced(t *testing.T) {
	for name, dies := range map[string]int{"an old one": 1, "the added one": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, directory := inEtcd(t, debian), t.TempDir()
			all := clusterIn(t, store, directory, 3, 2, nil)
			added := newMember(t, store, directory, 3, nil)
			nodes{added}.endWith(t)
			load := startClients(t, all, allLevels...)
			load.more(t, 300)
			added.begin(t)
			until(t, "it is added", func() bool { return all[0].tool(t, "add", added.name) == nil })
			added.waitReady(t)
			all = append(all, added)
			if err := all[0].tool(t, "rebalance"); err != nil {
				t.Fatal(err)
			}
			until(t, "the added node has something", func() bool {
				has, moving := all[0].actives(t)
				return moving > 0 || has[added.name] > 0
			})
			load.mayFail(nodeLost)
			all[dies].kill()
			until(t, "it is failed over", func() bool { return all[0].tool(t, "failover", all[dies].name) == nil })
			load.isOver()
			load.more(t, 300)
			if err := all[0].tool(t, "rebalance", "--status", "--wait"); err != nil {
				t.Fatal(err)
			}
			if err := all[0].tool(t, "remove", all[dies].name); err != nil {
				t.Fatal(err)
			}
			left := append(append(nodes{}, all[:dies]...), all[dies+1:]...)
			left.has(t, all[0])
			load.more(t, 300)
			load.finish(t)
		})
	}
}
