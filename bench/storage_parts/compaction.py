"""The tail of persisted writes while files are compacted, by where compactions run."""

import subprocess
import time

from harness import KEDGE, QUICK, fresh_dir, median, say, table
from node import LOGIN, load, size

from storage_parts.server import Repeat, Server, need_command, need_settings

NAME, TITLE = "compaction", "Persisted writes while files are compacted"
# As many documents in a vBucket, and as large ones, as a node of a large cluster has.
VBUCKETS, VALUE_BYTES = (8, 1024) if QUICK else (32, 1024)
ITEMS = VBUCKETS * 20_000
CONNECTIONS = 500
ROUNDS, SECONDS, WARMUP_S = (1, 2.5, 0.5) if QUICK else (5, 20, 1)
# Compactions at a time and their pool, of each case. Nothing is compacted without being told to.
QUIET = {"compaction_fragmentation_percent": 100}
CASES = {
    "none": {},
    "1 on writer": {"compaction_pool": "writer", "compaction_max_concurrent": 1},
    "2 on writer": {"compaction_pool": "writer", "compaction_max_concurrent": 2},
    "2 on auxio": {"compaction_pool": "auxio", "compaction_max_concurrent": 2},
}
NONE, _, WRITER, AUXIO = CASES
BARS = [
    ("p999_compaction_on_auxio_vs_none", "<=", 1.1, "x"),
    ("p999_compaction_on_auxio_vs_writer", "<=", 0.5, "x"),
]


def persisted(server, seconds, *flags):
    report = load(
        server.kv_url, "--durability", "persist_to_majority", "--num-items", ITEMS, "--num-threads", CONNECTIONS,
        *size(VALUE_BYTES), "--random-body", "--set-pct", 100, "--sequential", "--no-population", "--duration",
        seconds + WARMUP_S, "--warmup", WARMUP_S, *flags,
    )
    if report["errors"]:
        say(f"  {report['errors_by_kind']}")
    return report


def compact(server):
    """All files of the bucket once; returns when that is done."""
    command = [KEDGE, "compact", "default", "--wait", "-U", server.kv_url, *LOGIN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    # It is cut off in the end.
    if done.returncode != 0 and not server.is_ending:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr}")


def one(data, case, rate):
    server = Server(data, vbuckets=VBUCKETS, **CASES[case], **QUIET)
    try:
        server.wait_warm()
        flags = ["--rate-limit", rate]
        if case == NONE:
            return persisted(server, SECONDS, *flags)
        before, began = server.bucket_stats(), time.monotonic()
        with Repeat(lambda: compact(server)) as compactions:
            report = persisted(server, SECONDS, *flags)
            after, report["compacted_s"] = server.bucket_stats(), time.monotonic() - began
            report["times_all_files"] = compactions.times
            # The one under way may take long: it ends with the server.
            compactions.end()
            server.stop()
        report["compactions"] = after["ep_compactions"] - before["ep_compactions"]
        report["compacted_bytes"] = after["ep_compaction_bytes"] - before["ep_compaction_bytes"]
        return report
    finally:
        server.stop()


def measure():
    need_settings("compaction_pool", "compaction_max_concurrent", *QUIET)
    need_command("compact")
    say(f"{TITLE}: {ITEMS:,} documents, and the durable capacity")
    data = fresh_dir("compaction")
    server = Server(data, vbuckets=VBUCKETS, **QUIET)
    load(server.kv_url, "--num-items", ITEMS, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    server.wait_applied()
    capacity = [persisted(server, 1.5 if QUICK else 4)["ops_per_s"] for _ in range(1 if QUICK else 3)]
    server.stop()
    rate = round(median(capacity) / 2)
    samples = {case: [] for case in CASES}
    cases = list(CASES)
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}, {rate:,} writes/s")
        first = turn % len(cases)
        for case in cases[first:] + cases[:first]:
            samples[case].append(one(data, case, rate))
    return {"capacity_ops_per_s": capacity, "rate_per_s": rate, "samples": samples}


def ratio(samples, case, other):
    return median(a["p999_us"] / b["p999_us"] for a, b in zip(samples[case], samples[other]))


FIELDS = {"p50": "p50_us", "p99": "p99_us", "p99.9": "p999_us", "max": "max_us"}


def report(data, bars):
    samples = data["samples"]
    rows = []
    for case, runs in samples.items():
        each = lambda field: median(run[field] for run in runs)
        rows.append(
            [
                case, f"{each('ops_per_s'):,.0f}", *(f"{each(field):,.0f}" for field in FIELDS.values()),
                f"{ratio(samples, case, NONE):.2f}", f"{ratio(samples, case, WRITER):.2f}",
                "" if case == NONE else f"{median(run['compactions'] for run in runs):,.0f}",
                "" if case == NONE else f"{median(run['compacted_bytes'] / run['compacted_s'] for run in runs) / 1e6:,.0f}",
                sum(run["errors"] for run in runs),
            ]
        )
    bars.at_most(BARS[0][0], ratio(samples, AUXIO, NONE), 1.1, "x")
    bars.at_most(BARS[1][0], ratio(samples, AUXIO, WRITER), 0.5, "x")
    head = [
        "compactions", "writes/s", "p50 us", "p99 us", "p99.9 us", "max us", "p99.9 vs. none", "p99.9 vs. 2 on writer",
        "files compacted", "MB/s read and written", "errors",
    ]
    return (
        f"{VBUCKETS} vBuckets, {ITEMS:,} documents of {VALUE_BYTES} random bytes, commit log, {CONNECTIONS} connections. "
        f"`persist_to_majority` at {data['rate_per_s']:,} writes/s, half of what the node can do at most; latency counts from "
        f"when a write was due. `kedge compact --wait` runs again and again all the time. Medians of {ROUNDS} rounds of "
        f"{SECONDS} s.\n\n" + table(head, rows)
    )


def plots(data):
    series = {case: [median(run[field] for run in runs) for field in FIELDS.values()] for case, runs in data["samples"].items()}
    return [("compaction", "Latency of persisted writes while files are compacted, us", list(FIELDS), series)]
