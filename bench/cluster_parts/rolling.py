"""A rolling restart under load: each node is drained, stopped, started again, and catches up."""

import time

from harness import QUICK, say, table
from node import load, size

from cluster_parts import sdk_load
from cluster_parts.nodes import VBUCKETS, Cluster, need_cluster_command
from cluster_parts.sdk_load import HEAD, RATE, VALUE_BYTES, SdkLoad, figures, row

NAME, TITLE = "rolling", "Rolling restart under load"
ITEMS = 20_000 if QUICK else 200_000
BEFORE_S = 1 if QUICK else 10
LIMIT_S = 60 if QUICK else 300
BARS = [("rolling_restart_errors", "<=", 0, "")]
build = sdk_load.build


def measure():
    need_cluster_command("drain")
    say(TITLE)
    cluster = Cluster(3, 1, "rolling", vbuckets=VBUCKETS)
    load(cluster.kv_url, "--num-items", ITEMS, "--num-threads", 6, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    generator = SdkLoad(cluster, ITEMS)
    time.sleep(BEFORE_S)
    marks = [("before", generator.began, time.time())]
    for at, name in enumerate([node.name for node in cluster.nodes]):
        began = time.time()
        other = cluster.nodes[at - 1]
        other.command("drain", name, seconds=LIMIT_S)
        cluster.restart(at)
        cluster.wait_whole(LIMIT_S, other)
        marks.append((f"restart of {name}", began, time.time()))
    time.sleep(BEFORE_S)
    marks.append(("after", marks[-1][2], time.time()))
    samples = generator.end()
    cluster.stop()
    return {
        "phases": {name: figures(samples, begin, end) for name, begin, end in marks},
        "errors": figures(samples, generator.began, marks[-1][2])["errors"],
    }


def report(data, bars):
    bars.at_most("rolling_restart_errors", data["errors"], 0, "")
    return (
        f"Three nodes, one replica, {VBUCKETS:,} vBuckets, {ITEMS:,} documents of {VALUE_BYTES} bytes; {RATE:,} requests per second "
        f"of the vendor's SDK for Go, half of them SETs. One node after the other: `kedge cluster drain`, SIGTERM, start, until "
        f"the cluster has all copies again.\n\n" + table(HEAD, [row(name, phase) for name, phase in data["phases"].items()])
    )
