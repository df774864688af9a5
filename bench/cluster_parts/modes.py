"""E1: persisted writes of two nodes three ways, and one thread of them beside the floor of disk and loopback."""

import json
import subprocess

from harness import QUICK, WORK, median, only, table
from storage_parts.modes import (
    CLOSED, CONNECTIONS, HISTOGRAM, LOG, OPEN, VALUE_BYTES, WAYS, in_turn, persisted, ratio,
)

from cluster_parts.nodes import VBUCKETS, Cluster, between, drawn

NAME, TITLE = "modes", "E1: files opened each time, files kept open, and the commit log, on two nodes"
ITEMS = 20_000 if QUICK else 200_000
ROUNDS, SECONDS, WARMUP_S, BARE_S = (1, 1.5, 0.3, 0.5) if QUICK else (5, 4, 0.5, 2)
# A prepare on its way: header, framing, extras, key and value.
MESSAGE_BYTES = 24 + 4 + 28 + 21 + VALUE_BYTES
BARS = [
    ("e1_log_vs_direct_2000", ">=", 5.0, "x"),
    ("e1_log_vs_direct_1", ">=", 1.5, "x"),
    ("e1_keep_files_open_vs_not_2000", ">=", 1.0, "x"),
    ("e1_keep_files_open_vs_not_1", ">=", 1.0, "x"),
    ("e1_1_p50_vs_sync_and_round_trip", "<=", 2.2, "x"),
]
LIMITS = {name: (limit, unit) for name, _, limit, unit in BARS}


def bare():
    """p50 of a bare sync and of a bare round trip, in microseconds; everything else is frozen."""
    only(None)
    path = WORK / "data" / "bare"
    def p50(*command):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)["p50_us"]
    return {
        "sync_us": p50(WORK / "bare_loop", path, "append", VALUE_BYTES, BARE_S),
        "overwrite_us": p50(WORK / "bare_loop", path, "overwrite", VALUE_BYTES, BARE_S),
        "round_trip_us": p50(WORK / "bare_ping", MESSAGE_BYTES, BARE_S),
    }


def one(cluster, count):
    before, after, report = persisted(cluster, count, ITEMS, SECONDS, WARMUP_S)
    report["histogram"] = between(before, after)
    return report


def measure():
    floors = []
    def start(name, settings):
        cluster = Cluster(2, 1, name=name, vbuckets=VBUCKETS, **settings)
        cluster.outlast_freezes()
        return cluster
    def before(count):
        if count == 1:
            floors.append(bare())
    return {"samples": in_turn(TITLE, ROUNDS, ITEMS, start, one, before), "floors": floors}


def report(measured, bars):
    samples, floors = measured["samples"], measured["floors"]
    rows = []
    for count in CONNECTIONS:
        for way in WAYS:
            runs = samples[way][count]
            each = lambda field: median(run[field] for run in runs)
            rows.append(
                [
                    count, way, f"{each('server_mean_us'):,.0f}",
                    *(f"{each(field):,.0f}" for field in ("mean_us", "p50_us", "p99_us", "p999_us", "ops_per_s")),
                    f"{ratio(samples, CLOSED, way, count):.2f}", f"{ratio(samples, OPEN, way, count):.2f}",
                    sum(run["errors"] for run in runs),
                ]
            )
        for name, slower, faster in (
            (f"e1_log_vs_direct_{count}", OPEN, LOG), (f"e1_keep_files_open_vs_not_{count}", CLOSED, OPEN),
        ):
            bars.at_least(name, ratio(samples, slower, faster, count), *LIMITS[name])
    to_floor = [
        run["p50_us"] / (floor["sync_us"] + floor["round_trip_us"]) for run, floor in zip(samples[LOG][1], floors)
    ]
    bars.at_most("e1_1_p50_vs_sync_and_round_trip", median(to_floor), 2.2, "x")
    one_us = median(run["p50_us"] for run in samples[LOG][1])
    floor = {name: median(each[name] for each in floors) for name in floors[0]}
    head = [
        "connections", "files", "mean us, server", "mean us, client", "p50 us", "p99 us", "p99.9 us", "writes/s",
        "faster than closed", "faster than kept open", "errors",
    ]
    histograms = "\n\n".join(
        drawn(f"{HISTOGRAM}, {way}, {count} connections", samples[way][count][-1]["histogram"])
        for count in CONNECTIONS for way in WAYS
    )
    return (
        f"`kedge cluster-run --nodes 2 --replicas 1`, {VBUCKETS:,} vBuckets, {ITEMS:,} documents of {VALUE_BYTES} random bytes "
        f"that are all in their files, 100 % SET with `persist_to_majority`, medians of {ROUNDS} rounds of {SECONDS} s. The "
        f"server's mean is that of the histogram `{HISTOGRAM}` of both nodes; ratios are of it.\n\n" + table(head, rows)
        + f"\nThe floor: a bare append and its sync take {floor['sync_us']:.0f} us (p50; {floor['overwrite_us']:.0f} us where "
        f"blocks are written over), a bare round trip over loopback {floor['round_trip_us']:.0f} us. One connection, logged: "
        f"p50 {one_us:.0f} us, {one_us / (floor['sync_us'] + floor['round_trip_us']):.2f} times append and round trip, "
        f"{one_us / (floor['overwrite_us'] + floor['round_trip_us']):.2f} times overwrite and round trip.\n\nThe histograms of the last round:\n\n"
        f"```\n{histograms}\n```\n"
    )
