"""Persisted SETs beside Redis and Valkey, and the bare loop."""

import json
import signal
import subprocess

import rivals
from harness import QUICK, WORK, fresh_dir, median, only, say, table
from node import Kedge, load, size

from kv_parts.cells import FIGURES, figures, measured, ratio, ratio_to_best
from kv_parts.servers import AppendOnly, append_only, program, versions

NAME, TITLE = "persisted", "Persisted SETs beside Redis and Valkey"
ITEMS, VALUE_BYTES = 100_000, 512
CONNECTIONS = [1, 50, 500, 2000]
ROUNDS, SECONDS, WARMUP_S = (1, 0.7, 0.3) if QUICK else (5, 4, 0.5)
BARE_SECONDS = 1 if QUICK else 2
# One connection to each rival; more to the better of them: name, field, which rival is better, limit.
ONE_LIMIT = 1.3
LIMITS = [
    ("ops", "ops_per_s", max, ">=", 1.25),
    ("p99", "p99_us", min, "<=", 0.9),
    ("cpu", "server_cpu_us_per_op", min, "<=", 0.9),
]
BARE_BAR = ("persisted_1_p50_vs_bare_append", "<=", 1.15, "x")
BARS = [
    *((f"persisted_1_ops_vs_{name}", ">=", ONE_LIMIT, "x") for name in append_only()),
    *((f"persisted_{count}_{name}", sign, limit, "x") for count in CONNECTIONS[1:] for name, _, _, sign, limit in LIMITS),
    BARE_BAR,
]


def bare(mode):
    path = WORK / "data" / "bare"
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [WORK / "bare_loop", path, mode, str(VALUE_BYTES), str(BARE_SECONDS)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def one_round(turn, names, samples):
    kedge = Kedge(fresh_dir("kedge"))
    servers = {"kedge": (kedge.process, kedge.kv_url, ["--durability", "persist_to_majority"])}
    servers.update({name: (server.process, server.url, []) for name in names for server in [AppendOnly(name)]})
    # Each server is the neighbour of each other one in some rounds.
    order = list(servers)[turn % len(servers):] + list(servers)[:turn % len(servers)]
    only(None)
    for mode in ("append", "overwrite"):
        samples["bare", mode].append(bare(mode))
    for count in CONNECTIONS:
        for name in order:
            process, url, flags = servers[name]
            # In order, so that no two connections write one document at a time.
            command = [
                *flags, "--num-items", ITEMS, "--num-threads", count, *size(VALUE_BYTES), "--random-body", "--set-pct", 100,
                "--sequential", "--no-population", "--duration", SECONDS + WARMUP_S, "--warmup", WARMUP_S,
            ]
            samples[name, count].append(measured(f"{name} {count}", process, lambda: load(url, *command)))
    for process, _, _ in servers.values():
        process.stop(signal.SIGKILL)


def measure():
    names = append_only()
    if "valkey" not in names:
        say(f"Valkey is not installed, and not measured; its path can be given in {rivals.variable('valkey')}")
    samples = {("bare", "append"): [], ("bare", "overwrite"): []}
    samples.update({(name, count): [] for count in CONNECTIONS for name in ("kedge", *names)})
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        one_round(turn, names, samples)
    return {"versions": versions(*names), "samples": samples}


def set_bars(samples, names, bars):
    ours = {count: samples["kedge", count] for count in CONNECTIONS}
    for name in names:
        bars.at_least(f"persisted_1_ops_vs_{name}", ratio(ours[1], samples[name, 1], "ops_per_s"), ONE_LIMIT, "x")
    for count in CONNECTIONS[1:]:
        for name, field, best, sign, limit in LIMITS:
            add = bars.at_least if sign == ">=" else bars.at_most
            theirs = [samples[rival, count] for rival in names]
            add(f"persisted_{count}_{name}", ratio_to_best(ours[count], theirs, field, best), limit, "x")


def report(measured_parts, bars):
    samples, names = measured_parts["samples"], list(measured_parts["versions"])
    set_bars(samples, names, bars)
    append, overwrite = (median(run["p50_us"] for run in samples["bare", mode]) for mode in ("append", "overwrite"))
    one = median(run["p50_us"] for run in samples["kedge", 1])
    bars.at_most(BARE_BAR[0], one / append, BARE_BAR[2], "x")
    rows = []
    for count in CONNECTIONS:
        for name in ("kedge", *names):
            runs = samples[name, count]
            compared = [f"{ratio(samples['kedge', count], runs, field):.2f}" for _, field, *_ in LIMITS]
            rows.append([count, name, *figures(runs), *(compared if name != "kedge" else [""] * 3)])
    head = ["connections", "server", *FIGURES, "kedge's ratio of ops/s", "of p99", "of CPU"]
    beside = ", ".join(measured_parts["versions"].values())
    return (
        f"`persist_to_majority` against `appendfsync always` of {beside}. {VALUE_BYTES}-byte values, median of {ROUNDS} rounds of "
        f"{SECONDS} s. Bars of 50 and more connections are of the ratios to the better rival of each round, for each figure.\n\n"
        + table(head, rows)
        + f"\nA bare loop of pwrite + fdatasync of {VALUE_BYTES} bytes: p50 {append:.0f} us when the file grows (the bar is "
        f"against this one), {overwrite:.0f} us when blocks are written over. One connection of Kedge: p50 {one:.0f} us, "
        f"{one / append:.2f} and {one / overwrite:.2f} times that.\n"
    )
