"""Resident memory of a server that has nothing to do."""

import time

from harness import QUICK, fresh_dir, median, say, table
from node import Kedge

NAME, TITLE = "idle", "Idle server"
ROUNDS = 1 if QUICK else 3
# After it, what a start leaves behind is gone.
IDLE_SECONDS = 5
LIMIT_MIB = 12.0
BARS = [("idle_resident", "<=", LIMIT_MIB, "MiB")]
MIB = 1 << 20
KINDS = {"RssAnon": "memory of its own", "RssFile": "pages of the binary"}


def resident(pid):
    """Resident bytes by kind, as the kernel reports them."""
    with open(f"/proc/{pid}/status") as status:
        words = dict(line.split(":", 1) for line in status)
    return {kind: int(words[kind].split()[0]) * 1024 for kind in KINDS}


def measure():
    say(TITLE)
    samples = []
    for _ in range(ROUNDS):
        kedge = Kedge(fresh_dir("memory-idle"))
        time.sleep(IDLE_SECONDS)
        samples.append(resident(kedge.process.pid))
        kedge.stop()
    return samples


def report(measured, bars):
    total = median(sum(sample.values()) for sample in measured) / MIB
    bars.at_most(BARS[0][0], total, LIMIT_MIB, "MiB")
    rows = [[text, f"{median(sample[kind] for sample in measured) / MIB:.1f}"] for kind, text in KINDS.items()]
    intro = f"1,024 vBuckets without documents, {IDLE_SECONDS} s after the first answered GET, median of {ROUNDS}.\n\n"
    return intro + table(["kind", "MiB"], [*rows, ["all", f"{total:.1f}"]])
