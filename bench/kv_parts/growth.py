"""Processor time per operation as the number of items grows, beside memcached."""

from harness import QUICK, median, table

from kv_parts.pair import PIPELINE, run_cases
from kv_parts.servers import versions

NAME, TITLE = "growth", "Processor time as the number of items grows"
COUNTS = [100_000, 1_000_000] if QUICK else [100_000, 1_000_000, 10_000_000]
VALUE_BYTES = 100
ROUNDS, SECONDS = (1, 1) if QUICK else (3, 5)
CASES = {
    "get": ["--set-pct", 0, "--pipeline", PIPELINE],
    "set": ["--set-pct", 100, "--pipeline", PIPELINE],
}
TARGETS = ["kedge_kv", "memcached_binary"]
# How much the processor time per operation may grow from the fewest to the most items.
GROWTH_MAX = {"get": 1.4, "set": 1.5}
BARS = [
    bar
    for case, limit in GROWTH_MAX.items()
    for bar in [(f"growth_{case}_cpu", "<=", limit, "x"), (f"growth_{case}_cpu_vs_memcached", "<=", 1.0, "x")]
]


def measure():
    samples = {
        count: run_cases(f"{TITLE}, {count:,} items", CASES, count, VALUE_BYTES, ROUNDS, SECONDS, TARGETS) for count in COUNTS
    }
    return {"versions": versions("memcached"), "samples": samples}


def cpu(samples, count, case, target):
    return median(run["server_cpu_us_per_op"] for run in samples[count][case][target])


def set_bars(samples, bars):
    fewest, most = min(samples), max(samples)
    for case, limit in GROWTH_MAX.items():
        ours, theirs = (cpu(samples, most, case, target) / cpu(samples, fewest, case, target) for target in TARGETS)
        bars.at_most(f"growth_{case}_cpu", ours, limit, "x")
        bars.at_most(f"growth_{case}_cpu_vs_memcached", ours / theirs, 1.0, "x")


def report(measured, bars):
    samples = measured["samples"]
    set_bars(samples, bars)
    rows = [
        [case, target, *(f"{cpu(samples, count, case, target):.2f}" for count in samples)]
        for case in CASES
        for target in TARGETS
    ]
    return (
        f"Beside {measured['versions']['memcached']}. Server CPU us/op, {VALUE_BYTES}-byte values, binary protocol, {PIPELINE} "
        f"requests in flight, median of {ROUNDS} rounds of {SECONDS} s. The bars are growth from the fewest to the most items.\n\n"
        + table(["case", "server", *(f"{count:,} items" for count in samples)], rows)
    )
