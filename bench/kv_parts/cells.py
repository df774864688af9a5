"""One cell: a run of a generator against one server, and figures of several of them."""

import math
import threading
import time

from harness import Steal, median, only, say

# The pause between two looks at the server's processor time.
LOOK_S = 0.02


class ProcessorTime:
    """The processor time of a process in the course of a run. Only the measured seconds at its end count: before them, connections
    are opened and clients log in."""

    def __init__(self, process):
        self.process, self.samples, self.ended = process, [], threading.Event()
        self.thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self):
        self._look()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        self._look()

    def _look(self):
        self.samples.append((time.perf_counter(), self.process.cpu_seconds()))

    def _follow(self):
        while not self.ended.wait(LOOK_S):
            self._look()

    def of_the_last(self, seconds):
        """Processor seconds that were used in the last seconds of the run."""
        end, total = self.samples[-1]
        return total - at(self.samples, end - seconds)


def at(samples, when):
    """The value at a time, by interpolation between the samples (time, value) around it."""
    before = samples[0]
    if when <= before[0]:
        return before[1]
    for after in samples[1:]:
        if when <= after[0]:
            share = (when - before[0]) / (after[0] - before[0])
            return before[1] + (after[1] - before[1]) * share
        before = after
    return before[1]


def measured(what, process, generate):
    """The report of one run while the other servers are frozen, with the server's processor time per operation and the hypervisor's
    share of the machine's time. All of the run counts if the report has no `seconds`."""
    only(process)
    stolen = Steal()
    with ProcessorTime(process) as used:
        report = generate()
    cpu_us = used.of_the_last(report.get("seconds", math.inf)) * 1e6 / max(report["ops"], 1)
    report.update(server_cpu_us_per_op=round(cpu_us, 3), steal_share=stolen.share())
    if report["errors"] or report["misses"]:
        say(f"  {what}: {report['errors']} errors {report.get('errors_by_kind', '')}, {report['misses']} misses")
    return report


def ratio(ours, theirs, field):
    """The median of the ratios of rounds: neighbours in time see the same machine."""
    return median(a[field] / max(b[field], 1e-9) for a, b in zip(ours, theirs, strict=True))


def ratio_to_best(ours, rivals, field, best):
    """As `ratio`, to the better rival of each round. `best` is `max` or `min`."""
    better = [{field: best(run[field] for run in runs)} for runs in zip(*rivals, strict=True)]
    return ratio(ours, better, field)


def figures(runs):
    """Medians as texts: operations per second, latencies, processor time, steal, and the sum of errors."""
    ops = f"{median(run['ops_per_s'] for run in runs):,.0f}"
    latencies = [f"{median(run[field] for run in runs):,.0f}" for field in ("p50_us", "p99_us", "p999_us")]
    cpu = f"{median(run['server_cpu_us_per_op'] for run in runs):.2f}"
    steal = f"{max(run['steal_share'] for run in runs):.1%}"
    return [ops, *latencies, cpu, steal, sum(run["errors"] for run in runs)]


FIGURES = ["ops/s", "p50 us", "p99 us", "p99.9 us", "server CPU us/op", "most steal", "errors"]
