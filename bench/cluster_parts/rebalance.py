"""Rebalance from three nodes to four under load."""

import time

from harness import QUICK, say, table
from node import load, size
from storage_parts.server import Repeat

from cluster_parts import sdk_load
from cluster_parts.counting import fewest_moves, is_even, new_actives, new_copies, steps
from cluster_parts.nodes import VBUCKETS, Cluster, need_cluster_command
from cluster_parts.sdk_load import HEAD, RATE, VALUE_BYTES, SdkLoad, figures, row

NAME, TITLE = "rebalance", "Rebalance from three nodes to four under load"
ITEMS = 20_000 if QUICK else 1_000_000
BEFORE_S = 8 if QUICK else 30
LIMIT_S = 120 if QUICK else 1800
# Between two looks at the map that clients have.
LOOK_S = 0.2
BARS = [
    ("rebalance_3_to_4_p99_vs_before", "<=", 1.5, "x"),
    ("rebalance_3_to_4_errors", "<=", 0, ""),
    ("rebalance_3_to_4_copies_moved_vs_optimum", "<=", 1.0, "x"),
]
build = sdk_load.build


def measure():
    need_cluster_command("add")
    need_cluster_command("rebalance")
    say(f"{TITLE}: {ITEMS:,} documents")
    cluster = Cluster(3, 1, "rebalance", vbuckets=VBUCKETS)
    load(cluster.kv_url, "--num-items", ITEMS, "--num-threads", 6, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    if not QUICK:
        cluster.wait_applied()
    generator = SdkLoad(cluster, ITEMS)
    # The looks at the map cost processor time, too: they belong to both phases.
    with Repeat(cluster.chains, LOOK_S):
        time.sleep(BEFORE_S)
    before_end = time.time()
    maps = [cluster.chains()]
    cluster.add("n_3")
    ports = [node.ports[0] for node in cluster.nodes]
    with Repeat(lambda: maps.append(cluster.chains()), LOOK_S):
        began = time.time()
        cluster.nodes[0].command("rebalance", seconds=LIMIT_S)
        # The command may return before the end.
        while not is_even(maps[-1], ports):
            if time.time() - began > LIMIT_S:
                raise RuntimeError(f"the nodes have no even shares after {LIMIT_S} s")
            time.sleep(LOOK_S)
        ended = time.time()
    samples = generator.end()
    cluster.stop()
    actives = [chain[:1] for chain in maps[0]]
    return {
        "phases": {
            "before": figures(samples, generator.began, before_end), "during": figures(samples, began, ended),
        },
        "errors": figures(samples, generator.began, ended)["errors"],
        "copies_moved": steps(maps, new_copies), "copies_optimum": fewest_moves(maps[0], ports),
        "actives_moved": steps(maps, new_actives), "actives_optimum": fewest_moves(actives, ports),
    }


def report(data, bars):
    before, during = data["phases"]["before"], data["phases"]["during"]
    bars.at_most(BARS[0][0], during["p99_ms"] / before["p99_ms"], 1.5, "x")
    bars.at_most(BARS[1][0], data["errors"], 0, "")
    bars.at_most(BARS[2][0], data["copies_moved"] / data["copies_optimum"], 1.0, "x")
    return (
        f"One replica, {VBUCKETS:,} vBuckets, {ITEMS:,} documents of {VALUE_BYTES} bytes; {RATE:,} requests per second of the "
        f"vendor's SDK for Go, half of them SETs. *Before* ends when the fourth node starts; *during* is from the command to the "
        f"moment at which all nodes have even shares.\n\n" + table(HEAD, [row(name, phase) for name, phase in data["phases"].items()])
        + "\n" + table(["", "moved", "fewest possible"], [
            ["copies", data["copies_moved"], data["copies_optimum"]],
            ["actives", data["actives_moved"], data["actives_optimum"]],
        ])
    )
