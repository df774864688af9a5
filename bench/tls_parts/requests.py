"""Processor time of the server per request, with and without TLS."""

from harness import QUICK, say, table
from kv_parts.cells import FIGURES, figures, measured, ratio
from node import SERVER_THREADS, load, size

from tls_parts.servers import Certificate, KedgeTls

NAME, TITLE, BARS = "requests", "Requests with and without TLS", []
CONNECTIONS, PIPELINE, ITEMS = 32, 32, 100_000
ROUNDS, SECONDS = (1, 2) if QUICK else (5, 4)
# Percent of SETs, requests in flight, bytes of a value.
CASES = {
    "get": (0, 1, 512),
    "set": (100, 1, 512),
    "get_pipelined": (0, PIPELINE, 512),
    "set_pipelined": (100, PIPELINE, 512),
    "get_64k": (0, 1, 64 << 10),
}
ITEMS_OF_LARGE = 2_000


def flags(case):
    sets, pipeline, value_bytes = CASES[case]
    items = ITEMS_OF_LARGE if value_bytes > 4096 else ITEMS
    return ["--num-items", items, "--key-prefix", f"{value_bytes}-", *size(value_bytes), "--set-pct", sets, "--pipeline", pipeline]


def one_round(turn, certificate, samples):
    kedge = KedgeTls(certificate)
    urls = {"plain": kedge.kv_url, "tls": kedge.kv_tls_url}
    for case in ("get", "get_64k"):
        load(kedge.kv_url, *flags(case), "--num-threads", 4, "--num-cycles", 1)
    for case in CASES:
        for name in urls if turn % 2 == 0 else reversed(urls):
            more = ["--num-threads", CONNECTIONS, "--duration", SECONDS, "--no-population", *(kedge.trust if name == "tls" else [])]
            ran = measured(f"{name} {case}", kedge.process, lambda: load(urls[name], *flags(case), *more))
            samples[case][name].append(ran)
    kedge.stop()


def measure():
    certificate = Certificate()
    samples = {case: {"plain": [], "tls": []} for case in CASES}
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        one_round(turn, certificate, samples)
    return samples


def report(samples, _bars):
    rows = []
    for case, by_name in samples.items():
        for name, runs in by_name.items():
            fields = ("ops_per_s", "p99_us", "server_cpu_us_per_op")
            compared = [""] * 3 if name == "plain" else [f"{ratio(runs, by_name['plain'], field):.2f}" for field in fields]
            rows.append([case, name, *figures(runs), *compared])
    return (
        f"`kedge load` with {CONNECTIONS} connections of the key-value port, {SERVER_THREADS} server threads, median of {ROUNDS} rounds "
        f"of {SECONDS} s; *pipelined* is {PIPELINE} requests in flight. The generator encrypts on the same processors, so ratios of "
        f"operations per second say less than those of the server's processor time.\n\n"
        + table(["case", "connections", *FIGURES, "ratio of ops/s", "of p99", "of CPU"], rows)
    )
