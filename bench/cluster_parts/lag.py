"""How far a replica is behind its active under load."""

import threading
import time

from harness import QUICK, median, only, say, table
from node import load, size

from cluster_parts.nodes import VBUCKETS, Cluster
from cluster_parts.wire import Connection, NOT_MY_VBUCKET, SUCCESS, key_in

NAME, TITLE = "lag", "How far replicas are behind"
ITEMS, VALUE_BYTES, CONNECTIONS = 100_000, 512, 64
CAPACITY_S, SECONDS = (1, 2) if QUICK else (4, 20)
PAUSE_S = 0.005
LOADS = {"no durability": "none", "persist_to_majority": "persist_to_majority"}
BARS = [("replica_lag_p99_half_load", "<=", 50.0, "ms")]


def probe(cluster, seconds):
    """Writes a document, and asks the replica until it has it. Times from the answer to the write, in milliseconds."""
    sides = [Connection("127.0.0.1", node.ports[0]) for node in cluster.nodes]
    lags, value = [], 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        key = key_in(value * 7 % VBUCKETS)
        value += 1
        text = str(value).encode()
        active = next((at for at, side in enumerate(sides) if (status := side.set(key, text)) != NOT_MY_VBUCKET), None)
        answered = time.perf_counter()
        if active is None or status != SUCCESS:
            raise RuntimeError(f"the probe's write was refused with status {status:#x}")
        while sides[1 - active].get_replica(key) != text:
            if time.perf_counter() - answered > 30:
                raise RuntimeError("a replica is 30 s behind")
        lags.append((time.perf_counter() - answered) * 1e3)
        time.sleep(PAUSE_S)
    for side in sides:
        side.close()
    return sorted(lags)


def one(cluster, level):
    flags = [
        cluster.kv_url, "--durability", level, "--num-items", ITEMS, "--num-threads", CONNECTIONS, *size(VALUE_BYTES),
        "--random-body", "--set-pct", 100, "--sequential", "--no-population",
    ]
    capacity = load(*flags, "--duration", CAPACITY_S)["ops_per_s"]
    reports = []
    def run():
        reports.append(load(*flags, "--rate-limit", round(capacity / 2), "--duration", SECONDS + 1))
    generator = threading.Thread(target=run)
    generator.start()
    time.sleep(0.5)
    lags = probe(cluster, SECONDS)
    generator.join()
    at = lambda quantile: lags[int((len(lags) - 1) * quantile)]
    return {
        "capacity": capacity, "rate": reports[0]["ops_per_s"], "errors": reports[0]["errors"], "probes": len(lags),
        "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1),
    }


def measure():
    say(TITLE)
    cluster = Cluster(2, 1, "lag", vbuckets=VBUCKETS)
    only(cluster.process)
    measured = {name: one(cluster, level) for name, level in LOADS.items()}
    cluster.stop()
    return measured


def report(measured, bars):
    rows = [
        [
            name, f"{each['capacity']:,.0f}", f"{each['rate']:,.0f}", each["probes"],
            *(f"{each[field]:.2f}" for field in ("p50_ms", "p99_ms", "max_ms")), each["errors"],
        ]
        for name, each in measured.items()
    ]
    bars.at_most("replica_lag_p99_half_load", max(each["p99_ms"] for each in measured.values()), 50.0, "ms")
    head = ["load", "capacity, writes/s", "load, writes/s", "probes", "p50 ms", "p99 ms", "max ms", "errors"]
    return (
        f"Two nodes, one replica, {VBUCKETS:,} vBuckets, {CONNECTIONS} connections that write {VALUE_BYTES} bytes each at half of "
        f"what they can. A probe writes a document without durability and reads it from the replica again and again: the time "
        f"from the answer to the write to the read that has it, with that read's own round trip.\n\n" + table(head, rows)
    )
