"""Start, idle memory, restart, and memory per item."""

import signal
import time

from harness import QUICK, fresh_dir, median, say, table
from node import KEY_BYTES, Kedge, load, size

from kv_parts.servers import Memcached

NAME, TITLE = "process", "Start, memory, restart"
START_ROUNDS = 3 if QUICK else 15
IDLE_ROUNDS = 1 if QUICK else 3
RESTART_ITEMS, RESTART_BYTES = 1_000_000, 256
RESTART_ROUNDS = 1 if QUICK else 3
# A short run does not wait for the default, which is half a minute.
APPLY_SOON = ["--apply-max-lag", "5s"] if QUICK else []
BARS = [
    ("first_answer", "<=", 50, "ms"),
    ("idle_resident", "<=", 12, "MiB"),
    ("restart_1m_documents", "<=", 3, "s"),
    ("bytes_per_item_beyond_key_and_value", "<=", 64, "B"),
]


def starts():
    say("start on an empty directory")
    first_answers, resident = [], []
    for turn in range(START_ROUNDS):
        kedge = Kedge(fresh_dir("kedge"), wait=False)
        first_answers.append(kedge.first_answer())
        if turn < IDLE_ROUNDS:
            # After it, what a start leaves behind is gone.
            time.sleep(5)
            resident.append(kedge.process.resident_bytes())
        kedge.stop()
    return {"first_answer_s": first_answers, "idle_resident_bytes": resident}


def store(url):
    """Stores the documents of the restarts."""
    flags = ["--num-items", RESTART_ITEMS, "--num-threads", 4, *size(RESTART_BYTES), "--num-cycles", 1, "--random-body"]
    load(url, *flags)


def memcached_bytes_per_item():
    """Resident bytes of memcached beyond key and value."""
    memcached = Memcached()
    before = memcached.process.resident_bytes()
    store(memcached.url)
    grown = memcached.process.resident_bytes() - before
    memcached.process.stop()
    return grown / RESTART_ITEMS - KEY_BYTES - RESTART_BYTES


def restarts():
    say(f"restart with {RESTART_ITEMS:,} documents of {RESTART_BYTES} bytes")
    data = fresh_dir("kedge")
    kedge = Kedge(data, more=APPLY_SOON)
    time.sleep(1)
    before, stats_before = kedge.process.resident_bytes(), kedge.stats()
    store(kedge.kv_url)
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
    memory["memcached_resident_bytes_per_item"] = memcached_bytes_per_item()
    return seconds, memory


def measure():
    start = starts()
    restart, memory = restarts()
    return {"start": start, "restart_s": restart, "memory": memory}


def report(measured, bars):
    start, restart, memory = measured["start"], measured["restart_s"], measured["memory"]
    first_ms = median(start["first_answer_s"]) * 1e3
    idle_mib = median(start["idle_resident_bytes"]) / (1 << 20)
    # The worse of the two: after a clean stop, and after a kill.
    restart_s = max(median(restart["clean"]), median(restart["kill"]))
    for (name, _, limit, unit), figure in zip(
        BARS, [first_ms, idle_mib, restart_s, memory["accounted_bytes_per_item"]], strict=True
    ):
        bars.at_most(name, figure, limit, unit)
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
        f"Files are in the page cache at a restart. Documents have {KEY_BYTES}-byte keys and "
        f"{RESTART_BYTES}-byte values.\n\n" + table(["what", "figure"], rows)
    )
