"""Reads of a data set four times as large as the memory for it, beside what the disk can do."""

import json
import resource
import subprocess

from harness import QUICK, WORK, fresh_dir, median, only, say, table
from node import load, size

from parts import NotThere
from storage_parts.server import CachedFiles, Repeat, Server, bytes_below, files_below, need_settings

NAME, TITLE = "reads", "Reads of a data set four times as large as the quota"
VALUE_BYTES, VBUCKETS = 4096, 1024
QUOTA_MIB = 128 if QUICK else 512
ITEMS = 4 * (QUOTA_MIB << 20) // VALUE_BYTES
# Connections, threads of the server that read, and threads of the bare loop: as many reads at a time.
CONCURRENCY = [4, 16]
ROUNDS, SECONDS = (1, 2) if QUICK else (3, 6)
# The kernel is told to forget the files so often.
FORGET_S = 0.25
BARS = [("reads_4x_quota_vs_disk", ">=", 0.85, "x")]
FETCHED = ("ep_bg_fetched", "ep_bg_fetches")


def children_cpu_seconds():
    """Processor time of all programs that have ended: here the bare loop and the load generator."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bare(data, threads):
    """What the disk does when nothing but the reading of blocks is asked of it."""
    command, cpu = [WORK / "bare_reads", data, str(threads), str(SECONDS)], children_cpu_seconds()
    report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    report["cpu_s"] = children_cpu_seconds() - cpu
    return report


def reads(server, count, seed):
    """With another seed other documents than the last time, or those it left in memory would be asked for again."""
    fetched, before = server.figure(*FETCHED), server.io()
    cpu, clients_cpu = server.process.cpu_seconds(), children_cpu_seconds()
    with CachedFiles(server.data_dir) as cached, Repeat(cached.forget, FORGET_S):
        report = load(
            server.kv_url, "--num-items", ITEMS, "--num-threads", count, *size(VALUE_BYTES), "--set-pct", 0,
            "--no-population", "--duration", SECONDS, "--timeout", 30, "--seed", seed,
        )
    if report["errors"] or report["misses"]:
        say(f"  {report['errors_by_kind']}, {report['misses']} misses")
    report["cpu_s"] = server.process.cpu_seconds() - cpu
    report["clients_cpu_s"] = children_cpu_seconds() - clients_cpu
    after = server.io()
    report["fetches"] = server.figure(*FETCHED) - fetched
    report["device_bytes"] = after["read_bytes"] - before["read_bytes"]
    return report


def measure():
    need_settings("num_reader_threads", "apply_max_lag")
    say(f"{TITLE}: {ITEMS:,} documents")
    data = fresh_dir("reads")
    server = Server(data, vbuckets=VBUCKETS, apply_max_lag="1s")
    if not any(name in server.bucket_stats() for name in FETCHED):
        server.stop()
        raise NotThere("no background fetches")
    load(server.kv_url, "--num-items", ITEMS, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    server.wait_applied()
    server.stop()
    samples = {count: {"kedge": [], "disk": []} for count in CONCURRENCY}
    memory = {}
    for count in CONCURRENCY:
        # What was written with much memory is read with little.
        server = Server(data, quota=f"{QUOTA_MIB}MiB", num_reader_threads=count)
        server.wait_warm()
        for turn in range(ROUNDS):
            say(f"{TITLE}: {count} at a time, round {turn + 1} of {ROUNDS}")
            for target in ("kedge", "disk") if turn % 2 == 0 else ("disk", "kedge"):
                if target == "kedge":
                    only(server.process)
                    samples[count][target].append(reads(server, count, turn + 1))
                else:
                    only(None)
                    samples[count][target].append(bare(data, count))
        only(server.process)
        memory = {"mem_used": server.figure("mem_used"), "resident_bytes": server.process.resident_bytes()}
        server.stop()
    return {
        "samples": samples, "memory": memory, "files": len(files_below(data)), "files_bytes": bytes_below(data),
        "quota_bytes": QUOTA_MIB << 20,
    }


def report(data, bars):
    rows, ratios = [], []
    for count, of_count in data["samples"].items():
        ours, disk = of_count["kedge"], of_count["disk"]
        ratio = median(a["ops_per_s"] / b["reads_per_s"] for a, b in zip(ours, disk))
        fetch_ratio = median(a["fetches"] / a["seconds"] / b["reads_per_s"] for a, b in zip(ours, disk))
        ratios.append(ratio)
        fetches = sum(run["fetches"] for run in ours)
        rows.append(
            [
                count, f"{median(run['reads_per_s'] for run in disk):,.0f}", f"{median(run['ops_per_s'] for run in ours):,.0f}",
                f"{median(run['fetches'] / run['seconds'] for run in ours):,.0f}", f"{ratio:.2f}", f"{fetch_ratio:.2f}",
                f"{median(run['p50_us'] for run in ours):,.0f}", f"{median(run['p99_us'] for run in ours):,.0f}",
                f"{median(run['p50_us'] for run in disk):,.0f}", f"{median(run['p99_us'] for run in disk):,.0f}",
                f"{sum(run['device_bytes'] for run in ours) / max(fetches, 1):,.0f}",
                *(f"{median(run[cpu] * 1e6 / run['ops'] for run in ours):.1f}" for cpu in ("cpu_s", "clients_cpu_s")),
                f"{median(run['cpu_s'] * 1e6 / run['reads_per_s'] / SECONDS for run in disk):.1f}",
                sum(run["errors"] + run["misses"] for run in ours),
            ]
        )
    bars.at_least("reads_4x_quota_vs_disk", min(ratios), 0.85, "x")
    head = [
        "at a time", "disk, reads/s", "GETs/s", "fetches/s", "GETs vs. disk", "fetches vs. disk", "GET p50 us", "p99 us",
        "disk p50 us", "p99 us", "bytes from the device a fetch", "server CPU us/GET",
        "clients CPU us/GET", "disk loop CPU us/read", "errors",
    ]
    return (
        f"{ITEMS:,} documents of {VALUE_BYTES:,} random bytes, quota {QUOTA_MIB} MiB (used {data['memory']['mem_used'] >> 20} "
        f"MiB), files {data['files_bytes'] >> 20:,} MiB; GETs of random documents. The disk's own rate is that of a bare loop of "
        f"4 KiB reads with O_DIRECT at random places of the same files, with as many threads, while the server is frozen. "
        f"The machine has memory for all the files, so the page cache would answer: the kernel is told to forget them every "
        f"{FORGET_S} s. What the server got from the device all the same is in the table, as the kernel counts it. "
        f"Medians of {ROUNDS} rounds of {SECONDS} s, from the moment on at which the bucket is warm.\n\n" + table(head, rows)
    )


def plots(data):
    """Reads a second, by how many are under way at a time."""
    samples = data["samples"]
    each = lambda target, figure: [median(figure(run) for run in samples[count][target]) for count in CONCURRENCY]
    series = {
        "disk, reads of 4 KiB": each("disk", lambda run: run["reads_per_s"]),
        "GETs": each("kedge", lambda run: run["ops_per_s"]),
        "of them fetched": each("kedge", lambda run: run["fetches"] / run["seconds"]),
    }
    at = [f"{count} at a time" for count in CONCURRENCY]
    return [("reads", "Reads of four times the quota, a second", at, series)]
