"""From exec to the first answer, and to all documents in memory."""

import signal
import time

from harness import QUICK, fresh_dir, median, say, table
from node import load, size

from storage_parts.server import CachedFiles, Server, bytes_below, need_settings

NAME, TITLE = "restart", "Restart"
SIZES = [1_000_000] if QUICK else [1_000_000, 5_000_000]
VALUE_BYTES, VBUCKETS = 256, 1024
# Starts after a clean stop, and as many after a kill, by number of documents.
ROUNDS = {1_000_000: 1 if QUICK else 5, 5_000_000: 2}
BARS = [("first_answer_1m", "<=", 100.0, "ms")]


def start(data, items, turn):
    """One start: first answer, all loaded, memory."""
    server = Server(data, wait=False)
    key = f"{(turn + 1) * 7_368_787 % items:020}"
    first = server.first_answer(key, b"VALUE ", 120)
    def holds(stats):
        loaded = stats["curr_items"] - stats.get("ep_num_non_resident", 0)
        return stats.get("ep_warmup_thread") == "complete" and loaded == items
    server.wait_for(f"{items:,} documents are loaded", holds, 300)
    warm = time.perf_counter() - server.began
    return server, {"first_answer_s": first, "warm_s": warm, "resident_bytes": server.process.resident_bytes()}


def one_size(items):
    say(f"{TITLE}: {items:,} documents")
    data = fresh_dir("restart")
    server = Server(data, vbuckets=VBUCKETS, apply_max_lag="1s")
    load(server.kv_url, "--num-items", items, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    server.wait_applied()
    server.stop()
    samples = {"clean stop": [], "kill -9": [], "clean stop, cold": []}
    disk_bytes = bytes_below(data)
    hows = list(samples)[:2] * ROUNDS[items] + ["clean stop, cold"]
    for turn, how in enumerate(hows):
        if how == "clean stop, cold":
            with CachedFiles(data) as cached:
                cached.forget()
        server, sample = start(data, items, turn)
        samples[how].append(sample)
        # The next one finds what this one leaves.
        following = hows[turn + 1] if turn + 1 < len(hows) else "kill -9"
        server.stop(signal.SIGKILL if following == "kill -9" else signal.SIGTERM)
    return {"disk_bytes": disk_bytes, "starts": samples}


def measure():
    need_settings("apply_max_lag")
    return {items: one_size(items) for items in SIZES}


def report(measured, bars):
    rows = []
    for items, data in measured.items():
        for how, starts in data["starts"].items():
            each = lambda field: median(start[field] for start in starts)
            rows.append(
                [
                    f"{items:,}", f"{data['disk_bytes'] / (1 << 20):,.0f} MiB", how, f"{each('first_answer_s') * 1e3:,.1f} ms",
                    f"{max(start['first_answer_s'] for start in starts) * 1e3:,.1f} ms", f"{each('warm_s'):,.2f} s",
                    f"{each('resident_bytes') / (1 << 20):,.0f} MiB",
                ]
            )
    starts = measured[1_000_000]["starts"]
    # The worse of the two, with the files in the page cache.
    first = max(median(start["first_answer_s"] for start in starts[how]) for how in ("clean stop", "kill -9"))
    bars.at_most("first_answer_1m", first * 1e3, 100.0, "ms")
    head = ["documents", "files", "after", "first answer", "the worst", "all loaded", "resident"]
    return (
        f"Documents of {VALUE_BYTES} random bytes in {VBUCKETS:,} vBuckets, all of them in their files before the start. The "
        f"first answer is that to a GET of one of the documents. Files are in the page cache, but where it says *cold*: there "
        f"the kernel had forgotten them.\n\n" + table(head, rows)
    )


FIELDS = {"first answer": "first_answer_s", "all loaded": "warm_s"}


def plots(measured):
    """Time since exec, by what the start came after."""
    hows = ["clean stop", "kill -9", "clean stop, cold"]
    series = {
        f"{items:,}: {name}": [median(start[field] for start in data["starts"][how]) * 1e3 for how in hows]
        for items, data in measured.items() for name, field in FIELDS.items()
    }
    return [("restart", "From exec to the first answer, and to all documents in memory, ms", hows, series)]
