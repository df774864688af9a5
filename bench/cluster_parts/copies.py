"""New copies of large vBuckets: by DCP, and from files."""

import os
import time
from pathlib import Path

from harness import QUICK, median, say, table
from node import load, size
from storage_parts.server import need_settings

from cluster_parts.nodes import Cluster, need_cluster_command, wait_until

NAME, TITLE = "copies", "New copies by DCP and from files"
ITEMS = 50_000 if QUICK else 2_000_000
VALUE_BYTES, VBUCKETS = 512, 64
ROUNDS = 1 if QUICK else 3
LIMIT_S = 60 if QUICK else 900
# The smallest file that is copied; 0 is DCP.
WAYS = {"DCP": 0, "files": 1}
BARS = [
    ("copies_from_files_time_vs_dcp", "<=", 1.1, "x"),
    ("copies_from_files_cpu_vs_dcp", "<=", 0.6, "x"),
]


def used(node):
    """What a node has used so far: processor time in seconds, and bytes written."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rsplit(")", 1)[1].split()
    lines = Path(f"/proc/{node.pid}/io").read_text().splitlines()
    io = {name: int(count) for name, count in (line.split(": ") for line in lines)}
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), "written": io["write_bytes"]}


def figure(node, name):
    return int(node.bucket_stats()[name])


def one(min_bytes):
    """A second node gets a replica of every vBucket. Figures per document, when the copies count and when they are on disk."""
    cluster = Cluster(
        1, 1, "copies", vbuckets=VBUCKETS, file_copy_min_bytes=min_bytes, compaction_throttle="off",
    )
    load(cluster.kv_url, "--num-items", ITEMS, "--num-threads", 6, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    cluster.wait_applied()
    cluster.add("n_1")
    before, began = [used(node) for node in cluster.nodes], time.monotonic()
    cluster.nodes[0].command("rebalance", seconds=LIMIT_S)
    both = {node.ports[0] for node in cluster.nodes}
    wait_until("all copies count", lambda: all(both <= set(chain) for chain in cluster.chains()), LIMIT_S)
    took = time.monotonic() - began
    cluster.wait_applied()
    after = [used(node) for node in cluster.nodes]
    files = figure(cluster.nodes[1], "ep_file_copies")
    cluster.stop()
    if (files == VBUCKETS) != (min_bytes > 0):
        raise RuntimeError(f"{files} of {VBUCKETS} copies came from files with --file-copy-min-bytes={min_bytes}")
    per_item = lambda at, name: (after[at][name] - before[at][name]) / ITEMS
    return {
        "seconds": took,
        "source_us": per_item(0, "cpu_s") * 1e6, "receiver_us": per_item(1, "cpu_s") * 1e6,
        "source_written": per_item(0, "written"), "receiver_written": per_item(1, "written"),
    }


def measure():
    need_cluster_command("rebalance")
    need_settings("file_copy_min_bytes")
    say(f"{TITLE}: {ITEMS:,} documents")
    runs = {way: [] for way in WAYS}
    for number in range(ROUNDS):
        ways = list(WAYS) if number % 2 == 0 else list(WAYS)[::-1]
        for way in ways:
            runs[way].append(one(WAYS[way]))
    return runs


def report(data, bars):
    of = lambda way, name: median([run[name] for run in data[way]])
    cpu = lambda way: of(way, "source_us") + of(way, "receiver_us")
    bars.at_most(BARS[0][0], of("files", "seconds") / of("DCP", "seconds"), 1.1, "x")
    bars.at_most(BARS[1][0], cpu("files") / cpu("DCP"), 0.6, "x")
    names = ["seconds", "source_us", "receiver_us", "source_written", "receiver_written"]
    rows = [[way, *(f"{of(way, name):.2f}" for name in names)] for way in WAYS]
    head = ["", "s until all count", "source, us CPU", "receiver, us CPU", "source, bytes written", "receiver, bytes written"]
    return (
        f"{ITEMS:,} documents of {VALUE_BYTES} bytes in {VBUCKETS} vBuckets, all in their files; a second node gets a replica of each. "
        f"Processor time and written bytes are per document, until the receiver's files have all. Medians of {ROUNDS}.\n\n"
        + table(head, rows)
    )
