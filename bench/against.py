"""`make bench-against OLD=path`: one binary of Kedge against an older one, interleaved."""

import os
import shutil
import sys
from pathlib import Path

from harness import KEDGE, QUICK, WORK, Bars, Watch, build, fresh_dir, median, only, opening, say, table
from node import SERVER_THREADS, Kedge, load, size

ROUNDS = 3 if QUICK else 5
# Each round measures a case in short slices, the binaries in turn, as the speed of a machine drifts.
SLICES = 2 if QUICK else 4
SLICE_SECONDS = 1.25
WARMUP_SECONDS = 0.5
ITEMS = 100_000
VALUE_BYTES = 512
CONNECTIONS = 32
PIPELINE = 32
# A change that is not about speed may cost this much, which is about what a run differs from the next.
LEAST = 0.98

# Kinds of servers: flags, and the quota.
KINDS = {
    "logged": ([], "4GiB"),
    "direct": (["--commit-log", "false"], "4GiB"),
    # The items do not fit: most GETs read a file.
    "evicted": ([], "32MiB"),
}


def durable(count):
    return ["--set-pct", 100, "--num-threads", count, "--sequential", "--durability", "persist_to_majority"]


# Kind of server, name, flags of the generator.
CASES = [
    ("logged", "get", ["--set-pct", 0, "--num-threads", CONNECTIONS]),
    ("logged", "set", ["--set-pct", 100, "--num-threads", CONNECTIONS]),
    ("logged", "get_pipelined", ["--set-pct", 0, "--num-threads", CONNECTIONS, "--pipeline", PIPELINE]),
    ("logged", "set_pipelined", ["--set-pct", 100, "--num-threads", CONNECTIONS, "--pipeline", PIPELINE]),
    *(("logged", f"durable_{count}", durable(count)) for count in (1, 50, 500)),
    *(("direct", f"direct_durable_{count}", durable(count)) for count in (1, 50, 500)),
    ("evicted", "get_evicted", ["--set-pct", 0, "--num-threads", CONNECTIONS]),
]


def measure(old):
    """Samples by case and binary."""
    samples = {case: {"old": [], "new": []} for _, case, _ in CASES}
    for turn in range(ROUNDS):
        for kind in KINDS:
            say(f"old against new: {kind}, round {turn + 1} of {ROUNDS}")
            measure_kind(kind, old, turn, samples)
    return samples


def measure_kind(kind, old, turn, samples):
    more, quota = KINDS[kind]
    servers = [
        (name, Kedge(fresh_dir(f"against-{name}"), more=more, name=f"kedge-{name}", quota=quota, binary=binary))
        for name, binary in (("old", old), ("new", KEDGE))
    ]
    items = ["--num-items", ITEMS, *size(VALUE_BYTES)]
    for _, server in servers:
        only(server.process)
        load(server.kv_url, *items, "--num-threads", CONNECTIONS, "--set-pct", 100, "--num-cycles", 1)
        server.wait_applied()
    cases = [(case, flags) for of_kind, case, flags in CASES if of_kind == kind]
    for number, (case, flags) in enumerate(cases):
        slices = {"old": [], "new": []}
        for part in range(SLICES):
            for name, server in servers if (turn + number + part) % 2 == 0 else reversed(servers):
                slices[name].append(measure_slice(server, f"{name} {case}", [*items, *flags]))
        for name, reports in slices.items():
            samples[case][name].append(average(reports))
    for _, server in servers:
        only(server.process)
        server.stop()


def measure_slice(server, title, flags):
    only(server.process)
    cpu = server.process.cpu_seconds()
    duration = ["--duration", SLICE_SECONDS + WARMUP_SECONDS, "--warmup", WARMUP_SECONDS]
    report = load(server.kv_url, *flags, "--no-population", *duration)
    if report["errors"] or report["misses"]:
        say(f"  {title}: {report['errors']} errors, {report['misses']} misses")
    report["server_cpu_us_per_op"] = (server.process.cpu_seconds() - cpu) * 1e6 / max(report["ops"], 1)
    return report


def average(reports):
    figures = ("ops_per_s", "p99_us", "server_cpu_us_per_op")
    return {figure: sum(report[figure] for report in reports) / len(reports) for figure in figures}


def rows_and_bars(samples, bars):
    rows = []
    for case, runs in samples.items():
        ratio = median(new["ops_per_s"] / old["ops_per_s"] for new, old in zip(runs["new"], runs["old"]))
        cpu = median(
            new["server_cpu_us_per_op"] / old["server_cpu_us_per_op"] for new, old in zip(runs["new"], runs["old"])
        )
        rows.append(
            [
                case, *(f"{median(run['ops_per_s'] for run in runs[name]):,.0f}" for name in ("old", "new")),
                f"{ratio:.3f}", *(f"{median(run['p99_us'] for run in runs[name]):.0f}" for name in ("old", "new")),
                f"{cpu:.3f}",
            ]
        )
        bars.at_least(f"{case}_new_vs_old", ratio, LEAST, "x")
    return rows


def main():
    old = Path(os.environ.get("OLD", "")).resolve()
    if not old.is_file():
        sys.exit("which binary is the old one? make bench-against OLD=path/to/kedge")
    build()
    watch = Watch()
    bars = Bars()
    samples = measure(old)
    run = watch.end()
    head = ["case", "old ops/s", "new ops/s", "ratio (median of rounds)", "old p99 us", "new p99 us", "ratio of server CPU per op"]
    text = (
        f"{opening(run)} The load generator shares the machine with the servers.\n\n"
        f"{VALUE_BYTES}-byte values, {ITEMS:,} items, {SERVER_THREADS} server threads each, {CONNECTIONS} connections but for "
        f"durable writes, median of {ROUNDS} rounds of {SLICES} slices of {SLICE_SECONDS} s.\n\n" + table(head, rows_and_bars(samples, bars))
    )
    # Nothing is kept: which binary is the old one is different each time.
    print(text)
    print("\n".join(bars.lines()), flush=True)
    shutil.rmtree(WORK / "data", ignore_errors=True)


if __name__ == "__main__":
    main()
