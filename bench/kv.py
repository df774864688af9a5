#!/usr/bin/env python3
"""make bench-kv: one node of Kedge beside Debian's memcached and redis-server.

Everything runs in one go on one machine with one load generator (`kedge load`), interleaved, median of several
rounds. QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import json
import shutil
import signal
import subprocess
import time

from harness import (
    QUICK, WORK, Bars, Process, Watch, build, free_port, fresh_dir, median, need, only, opening, say, table,
    wait_for_port, write_results,
)
from node import KEY_BYTES, SERVER_THREADS, Kedge, load, size

VALUE_BYTES = 512
ITEMS = 100_000
PLAIN_CONNECTIONS = 32
PIPELINE = 32
PLAIN_ROUNDS, PLAIN_SECONDS = (3, 0.7) if QUICK else (7, 2)
DURABLE_CONNECTIONS = [1, 50, 500, 2000]
DURABLE_ROUNDS, DURABLE_SECONDS = (1, 1.5) if QUICK else (3, 5)
BARE_SECONDS = 1 if QUICK else 3
START_ROUNDS = 5 if QUICK else 15
RESTART_ITEMS, RESTART_BYTES = 1_000_000, 256
RESTART_ROUNDS = 1 if QUICK else 3


# ---- servers


def start_memcached():
    port = free_port()
    process = Process(
        "memcached",
        [need("memcached", "memcached"), "-u", "nobody", "-l", "127.0.0.1", "-p", port, "-t", SERVER_THREADS, "-m", 4096],
    )
    wait_for_port(process, port)
    return process, f"memcached://127.0.0.1:{port}"


def start_redis():
    port, data = free_port(), fresh_dir("redis")
    process = Process(
        "redis",
        [
            need("redis-server", "redis-server"), "--port", port, "--bind", "127.0.0.1", "--dir", data, "--save", "",
            "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0",
            "--maxclients", "10000",
        ],
    )
    wait_for_port(process, port)
    return process, f"redis://127.0.0.1:{port}"


# ---- (a) GET and SET beside memcached


def plain():
    """Samples by case and target."""
    cases = [
        ("get", ["--set-pct", 0]),
        ("set", ["--set-pct", 100]),
        ("get_pipelined", ["--set-pct", 0, "--pipeline", PIPELINE]),
        ("set_pipelined", ["--set-pct", 100, "--pipeline", PIPELINE]),
    ]
    samples = {case: {target: [] for target in ("memcached", "kedge_memcached_port", "kedge_kv_port")} for case, _ in cases}
    for turn in range(PLAIN_ROUNDS):
        say(f"GET and SET beside memcached: round {turn + 1} of {PLAIN_ROUNDS}")
        # Fresh ones each round: Kedge's log keeps every SET.
        kedge = Kedge(fresh_dir("kedge"))
        memcached, memcached_url = start_memcached()
        targets = [
            ("memcached", memcached_url, memcached),
            ("kedge_memcached_port", kedge.memcached_url, kedge.process),
            ("kedge_kv_port", kedge.kv_url, kedge.process),
        ]
        items = ["--num-items", ITEMS, "--num-threads", PLAIN_CONNECTIONS, *size(VALUE_BYTES)]
        for _, url, process in targets[:2]:
            only(process)
            load(url, *items, "--num-cycles", 1)
        for case, flags in cases:
            order = targets[turn % 3:] + targets[:turn % 3]
            for target, url, process in order:
                only(process)
                cpu = process.cpu_seconds()
                report = load(url, *items, *flags, "--no-population", "--duration", PLAIN_SECONDS)
                if report["errors"] or report["misses"]:
                    say(f"  {target} {case}: {report['errors']} errors, {report['misses']} misses")
                report["server_cpu_us_per_op"] = round((process.cpu_seconds() - cpu) * 1e6 / max(report["ops"], 1), 3)
                samples[case][target].append(report)
        memcached.stop()
        kedge.stop()
    return samples


def plain_report(samples, bars):
    rows = []
    for case, targets in samples.items():
        base = median(run["ops_per_s"] for run in targets["memcached"])
        for target, runs in targets.items():
            ops = median(run["ops_per_s"] for run in runs)
            # Neighbours in time see the same machine, so the ratio is taken per round.
            ratio = median(
                ours["ops_per_s"] / theirs["ops_per_s"] for ours, theirs in zip(runs, targets["memcached"])
            )
            rows.append(
                [
                    case, target, f"{ops:,.0f}", f"{ratio:.2f}", f"{ops / base:.2f}",
                    f"{median(run['p50_us'] for run in runs):.0f}", f"{median(run['p99_us'] for run in runs):.0f}",
                    f"{median(run['server_cpu_us_per_op'] for run in runs):.2f}",
                    sum(run["errors"] for run in runs),
                ]
            )
            if target != "memcached":
                bars.at_least(f"{case}_{target}", ratio, 1.0, "x")
    head = ["case", "server", "ops/s", "ratio (median of rounds)", "ratio of medians", "p50 us", "p99 us", "server CPU us/op", "errors"]
    return (
        f"## GET and SET beside memcached\n\n{VALUE_BYTES}-byte values, {ITEMS:,} items, {PLAIN_CONNECTIONS} connections, "
        f"{SERVER_THREADS} server threads each, {PIPELINE} requests in flight where pipelined, median of "
        f"{PLAIN_ROUNDS} rounds of {PLAIN_SECONDS} s. Kedge also writes every SET to its log; memcached keeps nothing.\n\n"
        + table(head, rows)
    )


# ---- (b) durable SETs beside Redis, and the bare loop


def bare(mode):
    path = WORK / "data" / "bare"
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [WORK / "bare_loop", path, mode, str(VALUE_BYTES), str(BARE_SECONDS)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def durable():
    samples = {"bare_append": [], "bare_overwrite": []}
    samples.update({(target, count): [] for count in DURABLE_CONNECTIONS for target in ("kedge", "redis")})
    for turn in range(DURABLE_ROUNDS):
        say(f"durable SETs beside Redis: round {turn + 1} of {DURABLE_ROUNDS}")
        kedge = Kedge(fresh_dir("kedge"))
        redis, redis_url = start_redis()
        targets = [
            ("kedge", kedge.kv_url, kedge.process, ["--durability", "persist_to_majority"]),
            ("redis", redis_url, redis, []),
        ]
        for count in DURABLE_CONNECTIONS:
            if count == 1:
                only(None)
                samples["bare_append"].append(bare("append"))
                samples["bare_overwrite"].append(bare("overwrite"))
            for target, url, process, flags in targets if turn % 2 == 0 else reversed(targets):
                only(process)
                cpu = process.cpu_seconds()
                # In order, so that no two connections write one document at a time.
                report = load(
                    url, *flags, "--num-items", ITEMS, "--num-threads", count, *size(VALUE_BYTES), "--random-body",
                    "--set-pct", 100, "--sequential", "--no-population", "--duration", DURABLE_SECONDS + 0.5,
                    "--warmup", 0.5,
                )
                if report["errors"]:
                    say(f"  {target} {count}: {report['errors_by_kind']}")
                report["server_cpu_us_per_op"] = round((process.cpu_seconds() - cpu) * 1e6 / max(report["ops"], 1), 3)
                samples[target, count].append(report)
        redis.stop(signal.SIGKILL)
        kedge.stop()
    return samples


def durable_report(samples, bars):
    rows = []
    for count in DURABLE_CONNECTIONS:
        ours, theirs = samples["kedge", count], samples["redis", count]
        ratio = median(a["ops_per_s"] / b["ops_per_s"] for a, b in zip(ours, theirs))
        p99 = median(a["p99_us"] / b["p99_us"] for a, b in zip(ours, theirs))
        for target, runs in (("kedge", ours), ("redis", theirs)):
            rows.append(
                [
                    count, target, f"{median(run['ops_per_s'] for run in runs):,.0f}",
                    *(f"{median(run[field] for run in runs):,.0f}" for field in ("p50_us", "p99_us", "p999_us")),
                    f"{median(run['server_cpu_us_per_op'] for run in runs):.1f}", sum(run["errors"] for run in runs),
                    f"{ratio:.2f}" if target == "kedge" else "", f"{p99:.2f}" if target == "kedge" else "",
                ]
            )
        if count >= 500:
            bars.at_least(f"durable_{count}_throughput_vs_redis", ratio, 1.2, "x")
            bars.at_most(f"durable_{count}_p99_vs_redis", p99, 1.0, "x")
    append = median(run["p50_us"] for run in samples["bare_append"])
    overwrite = median(run["p50_us"] for run in samples["bare_overwrite"])
    one = median(run["p50_us"] for run in samples["kedge", 1])
    bars.at_most("durable_1_p50_vs_bare_append", one / append, 1.6, "x")
    head = ["connections", "server", "ops/s", "p50 us", "p99 us", "p99.9 us", "server CPU us/op", "errors", "ratio of ops/s", "ratio of p99"]
    return (
        f"## Durable SETs beside Redis\n\n`persist_to_majority` against `appendfsync always`, {VALUE_BYTES}-byte values, "
        f"median of {DURABLE_ROUNDS} rounds of {DURABLE_SECONDS} s.\n\n" + table(head, rows)
        + f"\nA bare loop of pwrite + fdatasync of {VALUE_BYTES} bytes: p50 {append:.0f} us when the file grows (the bar is "
        f"against this one), {overwrite:.0f} us when blocks are written over. One connection of Kedge: p50 {one:.0f} us, "
        f"{one / append:.2f} and {one / overwrite:.2f} times that.\n"
    )


# ---- (c) start, idle memory, restart; (d) memory per item


def starts():
    say("start on an empty directory")
    first_answers, resident = [], []
    for turn in range(START_ROUNDS):
        kedge = Kedge(fresh_dir("kedge"), wait=False)
        first_answers.append(kedge.first_answer())
        if turn < 3:
            time.sleep(3)
            resident.append(kedge.process.resident_bytes())
        kedge.stop()
    return {"first_answer_s": first_answers, "idle_resident_bytes": resident}


def restarts():
    say(f"restart with {RESTART_ITEMS:,} documents of {RESTART_BYTES} bytes")
    data = fresh_dir("kedge")
    kedge = Kedge(data)
    time.sleep(1)
    before, stats_before = kedge.process.resident_bytes(), kedge.stats()
    load(
        kedge.kv_url, "--num-items", RESTART_ITEMS, "--num-threads", 4, *size(RESTART_BYTES), "--num-cycles", 1,
        "--random-body",
    )
    time.sleep(2)
    stats_waiting = kedge.stats()
    after = kedge.process.resident_bytes()
    # What waits for its file takes some memory, for half a minute.
    kedge.wait_applied()
    stats_after = kedge.stats()
    kedge.stop()
    payload = KEY_BYTES + RESTART_BYTES
    used = {
        when: int(stats["mem_used"]) - int(stats_before["mem_used"])
        for when, stats in (("waiting", stats_waiting), ("applied", stats_after))
    }
    memory = {
        "items": int(stats_after["curr_items"]),
        "accounted_bytes_per_item_waiting": used["waiting"] / RESTART_ITEMS - payload,
        "accounted_bytes_per_item": used["applied"] / RESTART_ITEMS - payload,
        "resident_bytes_per_item": (after - before) / RESTART_ITEMS - payload,
    }
    key = f"{RESTART_ITEMS - 1:020}"
    seconds, resident = {"clean": [], "kill": []}, []
    for turn in range(2 * RESTART_ROUNDS):
        how = "clean" if turn % 2 == 0 else "kill"
        kedge = Kedge(data, wait=False)
        seconds[how].append(kedge.first_answer(key, b"VALUE ", 120))
        # Most documents are not in memory yet when the first one is answered.
        kedge.wait_for("all documents are loaded", lambda stats: stats["ep_warmup_thread"] == "complete", 120)
        resident.append(kedge.process.resident_bytes())
        # The next one finds what this one leaves: turn 0 follows a clean stop.
        kedge.stop(signal.SIGKILL if how == "clean" else signal.SIGTERM)
    memory["resident_bytes_per_item_after_restart"] = (median(resident) - before) / RESTART_ITEMS - payload
    memcached, url = start_memcached()
    memcached_before = memcached.resident_bytes()
    load(url, "--num-items", RESTART_ITEMS, "--num-threads", 4, *size(RESTART_BYTES), "--num-cycles", 1, "--random-body")
    grown = memcached.resident_bytes() - memcached_before
    memory["memcached_resident_bytes_per_item"] = grown / RESTART_ITEMS - payload
    memcached.stop()
    return seconds, memory


def process_report(start, restart, memory, bars):
    first_ms = median(start["first_answer_s"]) * 1e3
    idle_mib = median(start["idle_resident_bytes"]) / (1 << 20)
    # The worse of the two: after a clean stop, and after a kill.
    restart_s = max(median(restart["clean"]), median(restart["kill"]))
    bars.at_most("first_answer", first_ms, 50, "ms")
    bars.at_most("idle_resident", idle_mib, 24, "MiB")
    bars.at_most("restart_1m_documents", restart_s, 3, "s")
    bars.at_most("bytes_per_item_beyond_key_and_value", memory["accounted_bytes_per_item"], 64, "B")
    rows = [
        ["exec to first answered GET, empty directory", f"{first_ms:.1f} ms (best {min(start['first_answer_s']) * 1e3:.1f}, worst {max(start['first_answer_s']) * 1e3:.1f})"],
        ["resident when idle, 1,024 vBuckets", f"{idle_mib:.1f} MiB"],
        [f"exec to first document of {RESTART_ITEMS:,}, after a clean stop", f"{median(restart['clean']):.2f} s"],
        ["the same after kill -9", f"{median(restart['kill']):.2f} s"],
        ["bytes per item beyond key and value, accounted", f"{memory['accounted_bytes_per_item']:.1f}"],
        ["the same, 2 s after the load, as they wait for their files", f"{memory['accounted_bytes_per_item_waiting']:.1f}"],
        ["the same, resident", f"{memory['resident_bytes_per_item']:.1f}"],
        ["the same, resident, after a restart", f"{memory['resident_bytes_per_item_after_restart']:.1f}"],
        ["memcached, resident", f"{memory['memcached_resident_bytes_per_item']:.1f}"],
    ]
    return (
        f"## Start, memory, restart\n\nFiles are in the page cache at a restart. Documents have {KEY_BYTES}-byte keys and "
        f"{RESTART_BYTES}-byte values.\n\n" + table(["what", "figure"], rows)
    )


def main():
    build("bare_loop")
    need("memcached", "memcached")
    need("redis-server", "redis-server")
    watch = Watch()
    bars = Bars()
    plain_samples = plain()
    durable_samples = durable()
    start = starts()
    restart, memory = restarts()
    run = watch.end()
    sections = [
        plain_report(plain_samples, bars), durable_report(durable_samples, bars),
        process_report(start, restart, memory, bars),
    ]
    intro = f"{opening(run)} The load generator shares the machine with the servers.\n\n"
    data = {
        **run,
        "plain": plain_samples,
        "durable": {key if isinstance(key, str) else f"{key[0]}_{key[1]}": runs for key, runs in durable_samples.items()},
        "start": start, "restart_s": restart, "memory": memory,
    }
    write_results("kv", "One node: make bench-kv", data, intro + "\n".join(sections), bars)
    shutil.rmtree(WORK / "data", ignore_errors=True)


if __name__ == "__main__":
    main()
