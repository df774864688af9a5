"""How long no node accepts writes for a vBucket that moves."""

from harness import QUICK, median, say, table
from node import load, size

from cluster_parts.counting import pause, percentile
from cluster_parts.nodes import VBUCKETS, Cluster
from cluster_parts.wire import MAJORITY, NO_DURABILITY, key_in
from cluster_parts.writer import KedgeClient, Writer

NAME, TITLE = "pause", "The write pause of a vBucket that moves"
ITEMS, VALUE_BYTES = (20_000 if QUICK else 200_000), 512
MOVES = 10 if QUICK else 300
LEVELS = {"no durability": NO_DURABILITY, "majority": MAJORITY}
LIMIT_MS, LIMIT_S = 20.0, 30
BARS = [("write_pause_of_move_p99", "<=", LIMIT_MS, "ms")]


def one(cluster, vb, target, level):
    """Moves a vBucket to the target while it is written to; the pause in milliseconds."""
    source = next(node for node in cluster.nodes if node is not target)
    key = key_in(vb)
    client = KedgeClient(cluster.nodes, lambda _: key, level, source)
    with Writer(client) as writer:
        cluster.nodes[0].tell("/kedge/cluster/move", bucket="default", vbucket=vb, node=target.name)
        seconds = writer.wait(lambda: pause(list(writer.acks), target.ports[0]), LIMIT_S)
    client.close()
    if seconds is None:
        raise RuntimeError(f"vBucket {vb} was not accepted by {target.name} within {LIMIT_S} s")
    return seconds * 1e3


def measure():
    say(TITLE)
    cluster = Cluster(2, 1, "pause", vbuckets=VBUCKETS)
    load(cluster.kv_url, "--num-items", ITEMS, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    pauses = {name: [] for name in LEVELS}
    by_port = {node.ports[0]: node for node in cluster.nodes}
    # Far from each other, so that the moves are of both nodes' vBuckets.
    vbuckets = [at * 389 % VBUCKETS for at in range(MOVES)]
    for name, level in LEVELS.items():
        chains = cluster.chains()
        for vb in vbuckets:
            pauses[name].append(one(cluster, vb, by_port[chains[vb][1]], level))
    cluster.stop()
    return pauses


def report(pauses, bars):
    bars.at_most("write_pause_of_move_p99", max(percentile(each, 0.99) for each in pauses.values()), LIMIT_MS, "ms")
    rows = [
        [name, len(each), f"{median(each):.2f}", f"{percentile(each, 0.99):.2f}", f"{max(each):.2f}"]
        for name, each in pauses.items()
    ]
    return (
        f"Two nodes, one replica, {VBUCKETS:,} vBuckets, {ITEMS:,} documents of {VALUE_BYTES} bytes. One vBucket moves at a time "
        f"to the node that has its replica, while one connection writes to it without a break, at one node and then at the "
        f"other: from the last write that the one accepted to the first that the other accepted, with the time of that "
        f"write.\n\n" + table(["writes", "moves", "p50 ms", "p99 ms", "max ms"], rows)
    )
