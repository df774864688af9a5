#!/usr/bin/env python3
"""make bench-cluster: two and three nodes of Kedge.

Parts, each in a file of `cluster_parts/`; `python3 bench/cluster.py PART...` runs some of them and writes no results:
modes        E1: persisted writes of two nodes: files closed, files kept open, commit log
rivals       500 connections, beside Redis with a replica and beside etcd
lag          how far a replica is behind at half load
failover     from the command to the first accepted write

QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import parts
from cluster_parts import failover, lag, modes, rivals
from harness import build


def prepare(wanted):
    build("bare_loop", "bare_ping")
    if rivals in wanted:
        rivals.build()


if __name__ == "__main__":
    parts.main("cluster", "Cluster: make bench-cluster", [modes, rivals, lag, failover], __doc__, prepare)
