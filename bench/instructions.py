#!/usr/bin/env python3
"""make bench-instructions: instructions of the server per operation, on a fixed trace, under valgrind's callgrind.

Prints for each case the figure of this tree, the committed one (bench/instructions.json) and their ratio. A figure that rose by
more than 5 % fails. UPDATE=1 writes the figures of this tree to that file instead of comparing. `instructions.py CASE...` counts
some cases. See bench/README.md for what is counted and how.
"""

import atexit
import json
import math
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import ROOT, WORK, build, fresh_dir, need, say, table
from node import Kedge, load, size

COMMITTED = ROOT / "bench" / "instructions.json"
UPDATE = os.environ.get("UPDATE", "") not in ("", "0")
PROFILES = WORK / "instructions"
# Repetitions on one machine differ by about 1 %.
RISE_MAX = 0.05
ROUNDS = 3
ITEMS, VALUE_BYTES, IN_FLIGHT = 10_000, 512, 32
# Periodic tasks visit every vBucket. With few of them, the time that a round takes has no effect on its figures.
VBUCKETS = 64
# Where the data are, and what they take at most.
MEMORY, DATA_BYTES_MAX = Path("/dev/shm"), 2 << 30
# What valgrind may take to write a profile, and a request under it.
CALLGRIND_S_MAX = 300
# After so many basic blocks valgrind looks for commands.
POLL_BLOCKS = 100
# The pause between requests whose only purpose is that the server executes something.
POKE_S = 0.02
# A server that used little of a processor for longer than the log's interval has every write in the log.
LOG_INTERVAL_MS, IDLE_S, IDLE_SHARE_MAX = 200, 0.5, 0.1

GET, SET = ["--set-pct", 0], ["--set-pct", 100]
DURABLE = [*SET, "--sequential", "--durability", "persist_to_majority"]
# Name: is it the key-value port's binary protocol, or the memcached port's text; flags of the generator; requests sent together,
# and how often.
CASES = {
    "get_binary": ("binary", GET, 1, 10_000),
    "get_text": ("text", GET, 1, 10_000),
    "set_binary": ("binary", SET, 1, 10_000),
    "set_text": ("text", SET, 1, 10_000),
    "get_binary_32_in_flight": ("binary", GET, IN_FLIGHT, 1_000),
    "get_text_32_in_flight": ("text", GET, IN_FLIGHT, 1_000),
    "set_binary_32_in_flight": ("binary", SET, IN_FLIGHT, 1_000),
    "set_text_32_in_flight": ("text", SET, IN_FLIGHT, 1_000),
    "persisted_set": ("binary", DURABLE, 1, 1_000),
    "persisted_set_32_in_flight": ("binary", DURABLE, IN_FLIGHT, 200),
}


def data_directory():
    """In memory if there is room, so that timers run seldom while a write is synced."""
    if not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < DATA_BYTES_MAX:
        return fresh_dir("instructions")
    path = tempfile.mkdtemp(prefix="kedge-instructions-", dir=MEMORY)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Callgrind:
    """A server whose instructions are counted: one front-end thread, and nothing applied to files."""

    def __init__(self):
        PROFILES.mkdir(parents=True, exist_ok=True)
        for old in PROFILES.iterdir():
            old.unlink()
        self.out, self.pipe = PROFILES / "callgrind", PROFILES / "vgdb"
        under = [
            need("valgrind", "valgrind"), "--tool=callgrind", f"--callgrind-out-file={self.out}",
            f"--vgdb-prefix={self.pipe}", f"--vgdb-poll={POLL_BLOCKS}",
        ]
        more = ["--apply-max-lag", "1h", "--log-interval", f"{LOG_INTERVAL_MS}ms", "--vbuckets", VBUCKETS]
        self.kedge = Kedge(data_directory(), more=more, quota="1GiB", under=under, threads=1)
        self.idler = socket.create_connection(("127.0.0.1", self.kedge.ports[2]), CALLGRIND_S_MAX)

    def dump(self, name):
        """The profile since the last call."""
        # `--max-invoke-ms=0`: otherwise vgdb stops the server with ptrace, which containers may forbid.
        command = [
            need("vgdb", "valgrind"), f"--pid={self.kedge.process.pid}", f"--vgdb-prefix={self.pipe}", "--max-invoke-ms=0",
            "dump",
        ]
        deadline = time.monotonic() + CALLGRIND_S_MAX
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as vgdb:
            while vgdb.poll() is None:
                # Valgrind looks for commands between instructions of the server, which therefore needs something to do.
                self.idler.sendall(b"version\r\n")
                self.idler.recv(100)
                if time.monotonic() > deadline:
                    vgdb.kill()
                time.sleep(POKE_S)
        if vgdb.returncode != 0:
            sys.exit(f"no profile of {name}: {self.kedge.process.complaint()}")
        (dumped,) = PROFILES.glob(f"{self.out.name}.*")
        return dumped.rename(PROFILES / f"{name}.out").read_text()

    def count(self, flags, name):
        """Instructions of all threads during a run of the generator."""
        self.dump("before")
        report = self.load(*flags, "--no-population")
        self.wait_idle(name)
        if report["errors"] or report["misses"]:
            sys.exit(f"{name}: errors {report['errors_by_kind']}, {report['misses']} misses")
        return instructions(self.dump(name))

    def wait_idle(self, name):
        """Until the server has nothing left to do."""
        used = -math.inf
        deadline = time.monotonic() + CALLGRIND_S_MAX
        while (now := self.kedge.process.cpu_seconds()) - used > IDLE_S * IDLE_SHARE_MAX:
            if time.monotonic() > deadline:
                sys.exit(f"{name}: the server is still busy after {CALLGRIND_S_MAX} s")
            used = now
            time.sleep(IDLE_S)

    def load(self, port, *flags):
        """One connection: what is received and executed together is the same in each run."""
        url = {"binary": self.kedge.kv_url, "text": self.kedge.memcached_url}[port]
        protocol = ["--protocol", "memcached-text"] if port == "text" else []
        return load(url, *protocol, "--num-items", ITEMS, *size(VALUE_BYTES), "--timeout", CALLGRIND_S_MAX, *flags)

    def per_operation(self, name):
        """The connection, the login and the generator's end cancel out, as a run of one batch is taken from one of many."""
        port, flags, batch, cycles = CASES[name]
        flags = [port, *flags, "--batch-size", batch, "--num-cycles"]
        one = self.count([*flags, 1], f"{name}-one")
        return (self.count([*flags, 1 + cycles], name) - one) / (batch * cycles)


def instructions(profile):
    """The sum that callgrind writes at the end of a profile."""
    for line in reversed(profile.splitlines()):
        if line.startswith(("totals:", "summary:")):
            return int(line.split()[1])
    sys.exit("callgrind wrote a profile without a sum")


def measure(names):
    """Figures by case."""
    say(f"instructions per operation: {len(names)} cases, {ROUNDS} rounds under callgrind")
    server = Callgrind()
    # Writes all items before it begins; the first persisted write of a vBucket allocates.
    server.load("binary", *DURABLE, "--batch-size", IN_FLIGHT, "--num-cycles", ITEMS // IN_FLIGHT)
    samples = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            samples[name].append(server.per_operation(name))
    server.kedge.stop()
    # Whatever depends on time, as timers and commits that contain fewer writes, only adds instructions.
    return {name: round(min(figures)) for name, figures in samples.items()}, samples


def compare(now, committed):
    """Rows of the table, and the sentences about figures that rose by too much, or that have changed and should be committed."""
    rows, risen, to_commit = [], [], []
    for name, figure in now.items():
        old = committed.get(name)
        ratio = figure / old if old else None
        rows.append([name, f"{figure:,}", f"{old:,}" if old else "-", f"{ratio:.3f}" if old else "-"])
        if ratio is None:
            to_commit.append(f"{name} has no committed figure")
        elif ratio > 1 + RISE_MAX:
            risen.append(f"{name} takes {ratio - 1:.1%} more instructions than committed")
        elif ratio < 1 - RISE_MAX:
            to_commit.append(f"{name} takes {1 - ratio:.1%} fewer instructions than committed")
    return rows, risen, to_commit


def main():
    unknown = [name for name in sys.argv[1:] if name not in CASES]
    if unknown:
        sys.exit(f"there is no case {', '.join(unknown)}; cases: {', '.join(CASES)}")
    if platform.machine() != "x86_64":
        say("instructions per operation: not counted, as the committed figures are those of x86-64")
        return
    build()
    now, samples = measure([name for name in CASES if name in sys.argv[1:] or not sys.argv[1:]])
    committed = json.loads(COMMITTED.read_text()) if COMMITTED.exists() else {}
    rows, risen, to_commit = compare(now, committed)
    spread = {name: max(each) / min(each) - 1 for name, each in samples.items()}
    for row in rows:
        row.append(f"{spread[row[0]]:.1%}")
    print(table(["instructions per operation", "now", "committed", "ratio", "spread of rounds"], rows), flush=True)
    shutil.rmtree(WORK / "data", ignore_errors=True)
    if UPDATE:
        figures = {**committed, **now}
        COMMITTED.write_text(json.dumps({name: figures[name] for name in CASES if name in figures}, indent=1) + "\n")
        say(f"written: {COMMITTED.relative_to(ROOT)}")
        return
    for sentence in risen + to_commit:
        say(sentence)
    if risen or to_commit:
        say("the figures of this tree are committed with: make bench-instructions UPDATE=1")
        say(f"profiles for callgrind_annotate --threshold=100: {PROFILES.relative_to(ROOT)}/")
    if risen:
        sys.exit(1)


if __name__ == "__main__":
    main()
