#!/usr/bin/env python3
"""make bench-cluster: two and three nodes of Kedge.

Parts, each in a file of `cluster_parts/`; `python3 bench/cluster.py PART...` runs some of them and writes no results:
modes        E1: persisted writes of two nodes: files closed, files kept open, commit log
rivals       500 connections, beside Redis with a replica and beside etcd
lag          how far a replica is behind at half load
failover     from the command to the first accepted write
automatic    from kill -9 to the first accepted write, and lost writes, beside Redis Sentinel
pause        how long no node accepts writes for a vBucket that moves
rebalance    from three nodes to four under load
copies       new copies by DCP and from files
rolling      rolling restart under load
stores       etcd against the embedded store

QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import parts
from cluster_parts import automatic, copies, failover, lag, modes, pause, rebalance, rivals, rolling, stores
from harness import build

PARTS = [modes, rivals, lag, failover, automatic, pause, rebalance, copies, rolling, stores]


def prepare(wanted):
    build("bare_loop", "bare_ping")
    for part_build in dict.fromkeys(part.build for part in wanted if hasattr(part, "build")):
        part_build()


if __name__ == "__main__":
    parts.main("cluster", "Cluster: make bench-cluster", PARTS, __doc__, prepare)
