"""From `kill -9` of a node to the first accepted write, and lost acknowledged writes, beside Redis Sentinel."""

import os
import signal
import time

from harness import QUICK, median, say, table

from cluster_parts.counting import first_accepted, lost_writes, percentile
from cluster_parts.nodes import VBUCKETS, Cluster, need_automatic_failover
from cluster_parts.sentinel import Sentinel
from cluster_parts.wire import NO_DURABILITY, PERSIST_TO_MAJORITY
from cluster_parts.writer import KedgeClient, Writer, numbered_key

NAME, TITLE = "automatic", "Automatic failover beside Redis Sentinel"
# The shortest that Kedge allows, and the same for the sentinels.
TIMEOUT_S = 1
NODES, REPLICAS = 3, 2
KILLS = 1 if QUICK else 20
# Before the kill, so that all watch all, and after the first accepted write.
BEFORE_S, AFTER_S = (1, 0.1) if QUICK else (3, 0.5)
# What takes longer counts as this.
LIMIT_S = 15 if QUICK else 60
SERIES = {"plain": False, "durable": True}
BARS = [(f"kill9_{series}_first_write_p99", "<=", TIMEOUT_S + 1.0, "s") for series in SERIES]
BARS.append(("kill9_durable_lost", "<=", 0, ""))


class Kedge:
    """Three nodes; the one that is killed differs from round to round, and the writes go to what is active there."""

    def __init__(self, durable, turn):
        self.durable = durable
        self.cluster = Cluster(NODES, REPLICAS, "automatic", vbuckets=VBUCKETS)
        self._lost = self.cluster.nodes[turn % NODES]
        need_automatic_failover(self.cluster)
        self.cluster.nodes[0].tell("/settings/autoFailover", enabled="true", timeout=TIMEOUT_S, maxCount=1)

    def client(self):
        port = self._lost.ports[0]
        vbuckets = {vb for vb, chain in enumerate(self.cluster.chains()) if chain[0] == port}
        level = PERSIST_TO_MAJORITY if self.durable else NO_DURABILITY
        return KedgeClient(self.cluster.nodes, lambda number: numbered_key(number, vbuckets), level, self._lost)

    def kill(self):
        """Ends the node; its port."""
        os.kill(self._lost.pid, signal.SIGKILL)
        return self._lost.ports[0]

    def stop(self):
        self.cluster.stop()


SERVERS = {
    "kedge": Kedge,
    "redis sentinel": lambda durable, _: Sentinel(durable, TIMEOUT_S),
}


def one(servers):
    client = servers.client()
    with Writer(client) as writer:
        time.sleep(BEFORE_S)
        already, killed_at = len(writer.acks), time.perf_counter()
        lost_server = servers.kill()
        first_s = writer.wait(lambda: first_accepted(writer.acks[already:], killed_at, lost_server), LIMIT_S)
        time.sleep(AFTER_S)
    acks = writer.acks
    lost = lost_writes(acks, client.found({ack.number for ack in acks}))
    client.close()
    return {
        "first_s": LIMIT_S if first_s is None else first_s, "acknowledged": len(acks), "refused": writer.refused,
        "lost": len(lost), "lost_numbers": lost[:100],
    }


def measure():
    samples = {name: {series: [] for series in SERIES} for name in SERVERS}
    for turn in range(KILLS):
        say(f"{TITLE}: kill {turn + 1} of {KILLS}")
        for series, durable in SERIES.items():
            for name, start in SERVERS.items():
                servers = start(durable, turn)
                try:
                    samples[name][series].append(one(servers))
                finally:
                    servers.stop()
    return samples


def report(samples, bars):
    for series in SERIES:
        p99 = percentile([run["first_s"] for run in samples["kedge"][series]], 0.99)
        bars.at_most(f"kill9_{series}_first_write_p99", p99, TIMEOUT_S + 1.0, "s")
    bars.at_most("kill9_durable_lost", sum(run["lost"] for run in samples["kedge"]["durable"]), 0, "")
    rows = []
    for name, of_name in samples.items():
        for series, runs in of_name.items():
            times = [run["first_s"] for run in runs]
            each = lambda field: [run[field] for run in runs]
            rows.append([
                name, series, f"{median(times):.2f}", f"{percentile(times, 0.99):.2f}", f"{sum(each('acknowledged')):,}",
                sum(each("lost")), max(each("lost")),
            ])
    head = ["server", "writes", "first write, median s", "p99 s", "acknowledged", "lost", "lost, worst kill"]
    return (
        f"A failover after {TIMEOUT_S} s; {KILLS} kills of each, each of servers that were just started, all on this machine. "
        f"Kedge: {NODES} nodes, {REPLICAS} replicas, {VBUCKETS:,} vBuckets; *durable* is `persist_to_majority`. Redis: a "
        f"master, 2 replicas, 3 sentinels; *plain* is `appendfsync everysec`, *durable* `appendfsync always`, "
        f"`min-replicas-to-write 1` and a `WAIT 1` after each SET. One writer writes one numbered key after another to what is "
        f"active at the node that is killed. A failover that takes longer than {LIMIT_S} s counts as {LIMIT_S} s.\n\n"
        + table(head, rows)
    )
