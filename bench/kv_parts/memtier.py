"""GET and SET beside memcached with an independent generator, memtier_benchmark."""

import json
import subprocess

import rivals
from harness import QUICK, WORK, fresh_dir, say, table
from node import LOAD_S_MAX, SERVER_THREADS, Kedge
from parts import NotThere

from kv_parts.cells import FIGURES, figures, measured, ratio
from kv_parts.servers import Memcached, versions

NAME, TITLE, BARS = "memtier", "GET and SET beside memcached, by memtier_benchmark", []
ITEMS, VALUE_BYTES, CONNECTIONS, PIPELINE = 100_000, 512, 32, 32
# The generator counts whole seconds.
ROUNDS, SECONDS = (1, 1) if QUICK else (3, 2)
PROTOCOLS = ["text", "binary"]
ALL_CASES = {
    "get": ["--ratio", "0:1", "--pipeline", 1],
    "get_pipelined": ["--ratio", "0:1", "--pipeline", PIPELINE],
    "set": ["--ratio", "1:0", "--pipeline", 1],
    "set_pipelined": ["--ratio", "1:0", "--pipeline", PIPELINE],
}
CASES = {case: flags for case, flags in ALL_CASES.items() if not QUICK or case.endswith("pipelined")}


def generator():
    path = rivals.binary("memtier", "memtier_benchmark")
    if not path:
        raise NotThere(f"memtier_benchmark, which is not installed (its path can be given in {rivals.variable('memtier')})")
    return path


def run(port, protocol, *flags):
    """One run of the generator; its report with the names of ours."""
    out = WORK / "memtier.json"
    command = [
        generator(), "-s", "127.0.0.1", "-p", port, "-P", f"memcache_{protocol}", "-t", 1, "-d", VALUE_BYTES,
        "--key-minimum", 1, "--key-maximum", ITEMS, "--hide-histogram", "--json-out-file", out, *flags,
    ]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LOAD_S_MAX)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr[-1000:]}")
    return named(json.loads(out.read_text()))


def named(document):
    """The figures of the generator's JSON, which has milliseconds, with the names and units of ours. Without `seconds`: they are not the
    last ones of the run, as the generator then computes for some more."""
    stats, totals = document["ALL STATS"], document["ALL STATS"]["Totals"]
    at = totals["Percentile Latencies"]
    seconds = stats["Runtime"]["Total duration"] / 1e3
    return {
        "ops": totals["Count"],
        "ops_per_s": totals["Ops/sec"],
        "errors": totals.get("Connection Errors", 0),
        "misses": round(totals["Misses/sec"] * seconds),
        **{f"{ours}_us": at[theirs] * 1e3 for ours, theirs in (("p50", "p50.00"), ("p99", "p99.00"), ("p999", "p99.90"))},
    }


def one_round(turn, samples):
    kedge, memcached = Kedge(fresh_dir("kedge")), Memcached()
    servers = {"memcached": (memcached.process, memcached.port), "kedge": (kedge.process, kedge.ports[2])}
    for _, port in servers.values():
        run(port, "text", *ALL_CASES["set_pipelined"], "-c", 4, "--key-pattern", "P:P", "-n", "allkeys")
    for case, flags in CASES.items():
        for protocol in PROTOCOLS:
            for name in servers if turn % 2 == 0 else reversed(servers):
                process, port = servers[name]
                more = ["-c", CONNECTIONS, "--key-pattern", "R:R", "--test-time", SECONDS]
                ran = measured(f"{name} {protocol} {case}", process, lambda: run(port, protocol, *flags, *more))
                samples[case][f"{name}_{protocol}"].append(ran)
    memcached.process.stop()
    kedge.stop()


def measure():
    path = generator()
    samples = {case: {f"{name}_{each}": [] for each in PROTOCOLS for name in ("memcached", "kedge")} for case in CASES}
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        one_round(turn, samples)
    return {"versions": {**versions("memcached"), "memtier": rivals.version(path)}, "samples": samples}


def report(measured_parts, _bars):
    rows = []
    for case, targets in measured_parts["samples"].items():
        for target, runs in targets.items():
            rival, fields = targets[target.replace("kedge", "memcached")], ("ops_per_s", "p99_us", "server_cpu_us_per_op")
            compared = [f"{ratio(runs, rival, field):.2f}" for field in fields] if target.startswith("kedge") else [""] * 3
            rows.append([case, target, *figures(runs), *compared])
    return (
        f"{measured_parts['versions']['memtier']}, one thread, beside {measured_parts['versions']['memcached']}. {VALUE_BYTES}-byte "
        f"values, {ITEMS:,} items, {CONNECTIONS} connections, {SERVER_THREADS} server threads each, median of {ROUNDS} rounds of "
        f"{SECONDS} s. The generator takes more processor time for each operation than `kedge load` and shares the machine with the "
        f"servers, so ratios of operations per second are nearer to 1. No bars.\n\n"
        + table(["case", "server", *FIGURES, "ratio of ops/s", "of p99", "of CPU"], rows)
    )
