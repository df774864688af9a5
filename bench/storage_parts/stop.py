"""From SIGTERM to the end of the process."""

import os
import select
import signal
import time

from harness import QUICK, fresh_dir, median, say, table
from node import load, size

from storage_parts.server import Server, need_settings

NAME, TITLE = "stop", "Stop"
ITEMS, VALUE_BYTES, VBUCKETS = 10_000 if QUICK else 100_000, 256, 1024
ROUNDS = 3 if QUICK else 7
# Documents that are written before a stop without waiting for the files. A shutdown applies the log of as many vBuckets.
JUST_WRITTEN = 50
STOP_MS_MAX = 200.0
MODES = {"commit log": True, "files alone": False}
BARS = [
    ("stop_idle_with_log", "<=", STOP_MS_MAX, "ms"),
    ("stop_idle_without_log", "<=", STOP_MS_MAX, "ms"),
]


def seconds_to_stop(server):
    """From the signal to the end of the process, which a wait with a deadline would see in steps of 50 ms."""
    end = os.pidfd_open(server.process.pid)
    try:
        ended = select.poll()
        ended.register(end, select.POLLIN)
        server.is_ending = True
        began = time.perf_counter()
        server.process.send(signal.SIGTERM)
        if not ended.poll(60_000):
            raise RuntimeError("the server does not stop")
        took = time.perf_counter() - began
    finally:
        os.close(end)
    if code := server.stop():
        raise RuntimeError(f"exit code {code}: {server.process.complaint()}")
    return took


def write(server, items):
    load(
        server.kv_url, "--num-items", items, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1
    )


def one_mode(commit_log):
    data = fresh_dir("stop")
    start = lambda: Server(data, vbuckets=VBUCKETS, apply_max_lag="1s", commit_log=commit_log)
    samples = {"nothing": [], f"{ITEMS:,}, all in their files": [], f"{JUST_WRITTEN} just written": []}
    empty, full, few = samples.values()
    for _ in range(ROUNDS):
        empty.append(seconds_to_stop(start()))
    server = start()
    write(server, ITEMS)
    server.wait_applied()
    server.stop()
    for _ in range(ROUNDS):
        server = start()
        server.wait_warm()
        full.append(seconds_to_stop(server))
    for _ in range(ROUNDS):
        server = start()
        write(server, JUST_WRITTEN)
        few.append(seconds_to_stop(server))
    return samples


def measure():
    need_settings("apply_max_lag", "commit_log")
    measured = {}
    for mode, commit_log in MODES.items():
        say(f"{TITLE}: {mode}")
        measured[mode] = one_mode(commit_log)
    return measured


def report(measured, bars):
    rows = [
        [mode, what, f"{median(took) * 1e3:,.1f} ms", f"{max(took) * 1e3:,.1f} ms"]
        for mode, samples in measured.items() for what, took in samples.items()
    ]
    for (name, *_), samples in zip(BARS, measured.values()):
        # The stops with nothing to write.
        empty, full, _ = samples.values()
        bars.at_most(name, max(empty + full) * 1e3, STOP_MS_MAX, "ms")
    return (
        f"{VBUCKETS:,} vBuckets, {ROUNDS} stops of each kind, from SIGTERM to the end of the process. Documents of "
        f"{VALUE_BYTES} random bytes. The bars apply to the worst stop with nothing to write.\n\n"
        + table(["mode", "documents", "median", "the worst"], rows)
    )
