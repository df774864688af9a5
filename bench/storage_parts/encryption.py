"""What encryption at rest costs: processor time of flushing an item, and the tail of persisted writes."""

import secrets
from pathlib import Path

from harness import QUICK, WORK, fresh_dir, median, only, say, table
from node import load, size

from storage_parts.server import Server, need_settings

NAME, TITLE = "encryption", "Encryption at rest"
ITEMS, VALUE_BYTES, VBUCKETS = (30_000 if QUICK else 300_000), 512, 64
CONNECTIONS = 100
# Each round has fresh servers. Slices of persisted writes are measured in turn, as the speed of a machine drifts.
ROUNDS, SLICES, SECONDS, WARMUP_S = (1, 2, 1.5, 0.3) if QUICK else (7, 4, 4, 0.5)
FLUSH_MOST, P99_MOST = 1.1, 1.05
BARS = [("flush_cpu_encrypted_vs_plain", "<=", FLUSH_MOST, "x"), ("p99_durable_encrypted_vs_plain", "<=", P99_MOST, "x")]
PLAIN, ENCRYPTED = KINDS = ["plain", "encrypted"]
# Files get all soon, and no compaction comes in between.
SETTINGS = {"apply_max_lag": "1s", "compaction_fragmentation_percent": 100}


def start(kind, key):
    more = {"encryption_master_key": f"file:{key}", "encryption_at_rest": True} if kind == ENCRYPTED else {}
    return Server(fresh_dir(kind), name=f"kedge-{kind}", vbuckets=VBUCKETS, **SETTINGS, **more)


def flush_cpu_seconds(server):
    """Processor time of the threads that write the log and the files. Ticks of the clock would be too coarse."""
    nanoseconds = 0
    for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
        if (thread / "comm").read_text().startswith("writer"):
            nanoseconds += int((thread / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def flush(server):
    """Microseconds of those threads for each of many new items, which no client waits for."""
    before = flush_cpu_seconds(server)
    load(server.kv_url, "--num-items", ITEMS, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    server.wait_applied()
    return (flush_cpu_seconds(server) - before) * 1e6 / ITEMS


def persisted(server, *flags):
    report = load(
        server.kv_url, "--durability", "persist_to_majority", "--num-items", ITEMS, "--num-threads", CONNECTIONS,
        *size(VALUE_BYTES), "--random-body", "--set-pct", 100, "--sequential", "--no-population", "--duration",
        SECONDS + WARMUP_S, "--warmup", WARMUP_S, *flags,
    )
    if report["errors"]:
        say(f"  {report['errors_by_kind']}")
    return report


def average(reports, field):
    return sum(report[field] for report in reports) / len(reports)


def one_round(turn, rate, key, samples):
    order = KINDS if turn % 2 == 0 else KINDS[::-1]
    servers = {}
    for kind in order:
        servers[kind] = start(kind, key)
        only(servers[kind].process)
        samples[kind].append({"flush_cpu_us": flush(servers[kind])})
    if rate is None:
        # Half of what the server without encryption can do at most: latency beyond that is that of a queue.
        only(servers[PLAIN].process)
        rate = round(persisted(servers[PLAIN])["ops_per_s"] / 2)
    slices = {kind: [] for kind in KINDS}
    for part in range(SLICES):
        for kind in order if part % 2 == 0 else order[::-1]:
            only(servers[kind].process)
            slices[kind].append(persisted(servers[kind], "--rate-limit", rate))
    for kind, server in servers.items():
        samples[kind][-1].update({field: average(slices[kind], field) for field in ("p50_us", "p99_us", "ops_per_s", "errors")})
        only(server.process)
        if kind == ENCRYPTED and server.figure("ep_encryption_plain_files") != 0:
            raise RuntimeError("the server that should encrypt has files in plain text")
        server.stop()
    return rate


def measure():
    need_settings("encryption_master_key", "encryption_at_rest")
    WORK.mkdir(parents=True, exist_ok=True)
    key = WORK / "master.key"
    key.write_text(secrets.token_hex(32))
    samples, rate = {kind: [] for kind in KINDS}, None
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        rate = one_round(turn, rate, key, samples)
    return {"rate_per_s": rate, "samples": samples}


def ratio(samples, field):
    """Of each round, then the one in the middle: neighbours in time see the same machine."""
    return median(one[field] / other[field] for one, other in zip(samples[ENCRYPTED], samples[PLAIN]))


def report(data, bars):
    samples = data["samples"]
    fields = ("flush_cpu_us", "p50_us", "p99_us", "ops_per_s")
    rows = [
        [kind, *(f"{median(run[field] for run in runs):,.2f}" for field in fields), f"{sum(run['errors'] for run in runs):.0f}"]
        for kind, runs in samples.items()
    ]
    rows.append(["ratio", *(f"{ratio(samples, field):.3f}" for field in fields), ""])
    bars.at_most(BARS[0][0], ratio(samples, "flush_cpu_us"), FLUSH_MOST, "x")
    bars.at_most(BARS[1][0], ratio(samples, "p99_us"), P99_MOST, "x")
    return (
        f"{VBUCKETS} vBuckets, commit log, {ITEMS:,} documents of {VALUE_BYTES} random bytes. *Flush* is the processor time of the "
        f"threads of the pool Writer, which write the log and the files, for each of as many new documents. Then "
        f"`persist_to_majority` from {CONNECTIONS} connections at {data['rate_per_s']:,} writes/s, half of what the node can do "
        f"without encryption, in {SLICES} slices of {SECONDS} s in turn. Medians of {ROUNDS} rounds; ratios are those of rounds.\n\n"
        + table(["files and log", "flush CPU us an item", "p50 us", "p99 us", "writes/s", "errors"], rows)
    )
