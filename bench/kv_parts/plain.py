"""GET and SET beside memcached, with values of three sizes."""

from harness import QUICK

from kv_parts.pair import LEGEND, PIPELINE, cases_table, ratios, run_cases, setting
from kv_parts.servers import versions

NAME, TITLE = "plain", "GET and SET beside memcached"
# The number of items by bytes of their values.
SIZES = {32: 100_000, 512: 100_000, 16_384: 20_000}
ROUNDS, SECONDS = (1, 0.3) if QUICK else (5, 1.5)
# GETs first: they end before Kedge applies what was stored to its files (`apply_max_lag`).
CASES = {
    "get": ["--set-pct", 0],
    "get_pipelined": ["--set-pct", 0, "--pipeline", PIPELINE],
    "set": ["--set-pct", 100],
    "set_pipelined": ["--set-pct", 100, "--pipeline", PIPELINE],
}
# Ratios to memcached.
LIMITS = {
    "get": {"ops": 1.2, "p99": 1.0, "cpu": 0.85},
    "get_pipelined": {"ops": 1.5, "p99": 1.0, "cpu": 0.85},
    "set": {"ops": 1.2, "p99": 1.0},
    "set_pipelined": {"ops": 1.0, "p99": 1.0, "cpu": 1.2},
}
# The worse of both ports with the binary protocol.
PROTOCOLS = {"text": ["kedge_text"], "binary": ["kedge_binary", "kedge_kv"]}
SIGNS = {"ops": ">=", "p99": "<=", "cpu": "<="}


def bar_name(case, protocol, value_bytes, figure):
    return f"{case}_{protocol}_{value_bytes}b_{figure}"


BARS = [
    (bar_name(case, protocol, value_bytes, figure), SIGNS[figure], limit, "x")
    for value_bytes in SIZES
    for case, limits in LIMITS.items()
    for protocol in PROTOCOLS
    for figure, limit in limits.items()
]


def measure():
    samples = {
        value_bytes: run_cases(f"{TITLE}, {value_bytes} bytes", CASES, items, value_bytes, ROUNDS, SECONDS)
        for value_bytes, items in SIZES.items()
    }
    return {"versions": versions("memcached"), "samples": samples}


def set_bars(value_bytes, samples, bars):
    for case, limits in LIMITS.items():
        for protocol, targets in PROTOCOLS.items():
            of = [ratios(samples[case], target) for target in targets]
            for figure, limit in limits.items():
                add, worst = (bars.at_least, min) if SIGNS[figure] == ">=" else (bars.at_most, max)
                add(bar_name(case, protocol, value_bytes, figure), worst(each[figure] for each in of), limit, "x")


def report(measured, bars):
    text = f"Beside {measured['versions']['memcached']}. {LEGEND} Kedge writes every SET to its log; memcached keeps nothing.\n"
    for value_bytes, samples in measured["samples"].items():
        set_bars(value_bytes, samples, bars)
        text += f"\n{setting(SIZES[value_bytes], value_bytes, ROUNDS, SECONDS)}\n\n{cases_table(samples)}"
    return text
