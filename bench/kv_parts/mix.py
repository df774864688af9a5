"""A mix of 90 GETs and 10 SETs beside memcached, of uniform and of Zipfian keys."""

from harness import QUICK

from kv_parts.pair import LEGEND, PIPELINE, cases_table, run_cases, setting
from kv_parts.servers import versions

NAME, TITLE, BARS = "mix", "90 GETs and 10 SETs beside memcached", []
ITEMS, VALUE_BYTES = 100_000, 512
ROUNDS, SECONDS = (1, 0.3) if QUICK else (5, 1.5)
SKEW = 0.99
MIX, IN_FLIGHT, ZIPFIAN = ["--set-pct", 10], ["--pipeline", PIPELINE], ["--zipfian", SKEW]
CASES = {
    "uniform": MIX,
    "uniform_pipelined": [*MIX, *IN_FLIGHT],
    "zipfian": [*MIX, *ZIPFIAN],
    "zipfian_pipelined": [*MIX, *ZIPFIAN, *IN_FLIGHT],
}


def measure():
    return {"versions": versions("memcached"), "samples": run_cases(TITLE, CASES, ITEMS, VALUE_BYTES, ROUNDS, SECONDS)}


def report(measured, _bars):
    return (
        f"Beside {measured['versions']['memcached']}. {LEGEND} The Zipfian distribution has the skew {SKEW}. "
        f"{setting(ITEMS, VALUE_BYTES, ROUNDS, SECONDS)}\n\n{cases_table(measured['samples'])}"
    )
