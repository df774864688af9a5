#!/usr/bin/env python3
"""make bench-executor: Kedge's task pools beside older designs and bare hand-overs.

`bench/executor` measures: everything in one process, interleaved, several rounds. This adds the look at the machine, the
medians, the bars and the reports. QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import os

from harness import Bars, Watch, build_crate, median, opening, run_crate, say, table, write_results

OURS = "kedge"
SEMANTIC = ["single_mutex", "one_scheduler"]
# What our handle must reach of each.
BARE = {"tokio_spawn": 1.0, "tokio_spawn_blocking": 1.0, "rayon": 1.0, "threadpool": 1.0, "crossbeam": 0.5}
NOTICES = ["handle", "condvar"]
LONG_LIVED = ["longlived_16", "longlived_64"]
# Benchmarks whose throughput and fairness must last as threads are added.
SCALING = {"oneshot_handle": "oneshot_handle", "oneshot_condvar": "oneshot_condvar"} | {
    name: f"{name}_wake" for name in LONG_LIVED
}
# What is also measured while all cores are busy with other work, as `busy_NAME`.
BUSY = [*NOTICES, "longlived_16", "timeouts"]
TIMEOUTS = ["timeouts", "busy_timeouts"]
# Our pools of which it is measured how late timers fire.
LATE = ["nonio", "auxio"]
# How far the processors were from each other: with cells of the first the bars are taken, if each was seen often enough.
DISTANCES = {"near": "share a cache or a core", "far": "share no cache"}
FIELDS = ["items_per_s", "fairness", "cpu_us_per_item", "settled_per_s"]

TITLES = {
    "floor": "The floor: two threads give each other a turn",
    "oneshot_handle": "OneShot, result through a handle",
    "oneshot_condvar": "OneShot, result through a condition variable",
    "busy_handle": "OneShot, handle, all cores busy with other work",
    "busy_condvar": "OneShot, condition variable, all cores busy with other work",
    "longlived_16_wake": "LongLived, 16 tasks, `wake`",
    "longlived_16_wake_and_wait": "LongLived, 16 tasks, `wake_and_wait`",
    "longlived_64_wake": "LongLived, 64 tasks, `wake`",
    "longlived_64_wake_and_wait": "LongLived, 64 tasks, `wake_and_wait`",
    "busy_longlived_16": "LongLived, 16 tasks, `wake`, all cores busy with other work",
    "timeouts": "TimeoutAddCancel",
    "busy_timeouts": "TimeoutAddCancel, all cores busy with other work",
}


# ---- measuring


class Figures:
    """Samples by benchmark, contender and size (threads, or tasks of TimeoutAddCancel), all in the order of the plan.
    `floor` names the one that ratios are taken to."""

    def __init__(self, samples, floor):
        self.tree, self.floor = {}, floor
        for sample in samples:
            sizes = self.tree.setdefault(sample["bench"], {}).setdefault(sample["contender"], {})
            fields = sizes.setdefault(sample["size"], {})
            for field in FIELDS:
                if sample[field] is not None:
                    fields.setdefault(field, []).append(sample[field])

    def contenders(self, bench):
        return list(self.tree[bench])

    def sizes(self, bench):
        return list(next(iter(self.tree[bench].values())))

    def counts(self):
        """How many samples each cell has."""
        cells = (sizes for contenders in self.tree.values() for sizes in contenders.values())
        return [len(fields["items_per_s"]) for sizes in cells for fields in sizes.values()]

    def median(self, bench, contender, size, field="items_per_s"):
        return median(self.tree[bench][contender][size][field])

    def ratio(self, bench, rival, size):
        """Of medians."""
        return self.median(bench, OURS, size) / max(self.median(bench, rival, size), 1e-9)

    def times_the_floor(self, bench, contender, size):
        return self.median(bench, contender, size) / self.median("floor", self.floor, 2)


# ---- bars


def set_bars(figures, bars, suffix=""):
    """Every bar is the worst of its numbers of threads."""

    def bar(name, measured, limit):
        bars.at_least(name + suffix, measured, limit, "x")

    def worst(bench, rival, sizes=None):
        return min(figures.ratio(bench, rival, size) for size in sizes or figures.sizes(bench))

    for notice in NOTICES:
        bench = f"oneshot_{notice}"
        more = [size for size in figures.sizes(bench) if size > 1]
        for rival in SEMANTIC:
            bar(f"{bench}_1_vs_{rival}", worst(bench, rival, [1]), 1.0)
            bar(f"{bench}_vs_{rival}", worst(bench, rival, more), 3.0)
    for rival, limit in BARE.items():
        bar(f"oneshot_handle_vs_{rival}", worst("oneshot_handle", rival), limit)
    for name in LONG_LIVED:
        for rival in SEMANTIC:
            bar(f"{name}_vs_{rival}", worst(f"{name}_wake", rival), 4.0)
    for size in figures.sizes("timeouts"):
        for rival in SEMANTIC:
            bar(f"timeouts_{size}_vs_{rival}", worst("timeouts", rival, [size]), 1.0)
    for name, bench in SCALING.items():
        many, few = (figures.median(bench, OURS, size) for size in (16, 4))
        bar(f"{name}_16_vs_4_threads", many / few, 0.8)
    for name, bench in SCALING.items():
        fairness = min(figures.median(bench, OURS, size, "fairness") for size in figures.sizes(bench))
        bar(f"{name}_least_vs_most_served", fairness, 0.3)
    for name in BUSY:
        for rival in SEMANTIC:
            bar(f"busy_{name}_vs_{rival}", worst(f"busy_{name}", rival), 1.0)
    for name in LONG_LIVED:
        for size in (8, 16):
            post, wait = (figures.median(f"{name}_{how}", OURS, size) for how in ("wake", "wake_and_wait"))
            bar(f"{name}_wake_vs_and_wait_{size}", post / wait, 1.3)


# ---- reports


def thousands(value):
    return f"{value / 1e3:,.1f}" if value < 1e5 else f"{value / 1e3:,.0f}"


def head(bench, figures):
    unit = "tasks" if bench in TIMEOUTS else "thread"
    return [f"{size:,} {unit}{'s' if unit == 'thread' and size > 1 else ''}" for size in figures.sizes(bench)]


def samples_report(reported, effort):
    """How often each cell was measured, and for how long."""
    counts = [count for figures in reported for count in figures.counts()]
    least, most = min(counts), max(counts)
    times = f"{least} to {most}" if most > least else f"{most}"
    shorter = f" ({effort['timeouts_s']} s of TimeoutAddCancel)" if effort["timeouts_s"] < effort["measured_s"] else ""
    return f"Medians of {times} samples a cell, each of {effort['measured_s']} s{shorter}, contenders interleaved."


def distances_report(seen, distances):
    """What was measured at which distance of the processors, and what of it is reported."""
    counts = " and ".join(f"{len(samples):,} while they {DISTANCES[name]}" for name, samples in seen.items() if samples)
    text = f"The processors changed their places: there are {counts}." if all(seen.values()) else f"All samples: {counts}."
    if not distances:
        return f"{text} THAT WAS TOO OFTEN, so the figures mix both."
    missing = [DISTANCES[name] for name, samples in seen.items() if samples and name not in distances]
    return text + "".join(f" Too few for those that {what}: they stand in the JSON only." for what in missing)


def bench_report(bench, figures):
    sizes = figures.sizes(bench)
    first, second, ratios = [], [], []
    for contender in figures.contenders(bench):
        throughput = [figures.median(bench, contender, size) for size in sizes]
        first.append([contender, *map(thousands, throughput)])
        details = []
        for size in sizes:
            cell = f"{figures.median(bench, contender, size, 'cpu_us_per_item'):.2f}"
            if bench in TIMEOUTS:
                cell += f" · {thousands(figures.median(bench, contender, size, 'settled_per_s'))}"
            else:
                cell += f" · {figures.median(bench, contender, size, 'fairness'):.2f}"
                cell += f" · {figures.times_the_floor(bench, contender, size):.1f}"
            details.append(cell)
        second.append([contender, *details])
        if contender != OURS:
            ratios.append([contender, *(f"{figures.ratio(bench, contender, size):.2f}" for size in sizes)])
    columns = head(bench, figures)
    detail = "k items/s until the pool has acted" if bench in TIMEOUTS else "least by most served · times the futex floor"
    return (
        f"## {TITLES[bench]}\n\n" + table(["thousand items/s", *columns], first) + "\n"
        + table([f"{OURS} divided by", *columns], ratios) + "\n"
        + table([f"CPU us per item · {detail}", *columns], second)
    )


def floor_report(figures):
    rows = []
    for name in figures.contenders("floor"):
        items = figures.median("floor", name, 2)
        rows.append([name, thousands(items), f"{1e6 / items:.2f}", f"{figures.median('floor', name, 2, 'cpu_us_per_item'):.2f}"])
    # A round trip on one core is two hand-overs, and nothing but them.
    hand_over_us = figures.median("floor", "condvar_same_core", 2, "cpu_us_per_item") / 2
    most = os.cpu_count() * 1e6 / hand_over_us
    return (
        f"## {TITLES['floor']}\n\nA hand-over through a condition variable whose waiter sleeps takes {hand_over_us:.2f} us of processor time, "
        f"half of a round trip on one core: {os.cpu_count()} cores make no more than {thousands(most)} thousand of them a second: "
        f"who makes more items has the result there before its front thread sleeps.\n\n\"Times the futex floor\" below is items/s divided by {figures.floor}.\n\n"
        + table(["means and place", "thousand round trips/s", "us", "CPU us"], rows)
    )


def idle_report(idle):
    rows = []
    for name in [OURS, *SEMANTIC]:
        each = idle[name]
        rows.append([name, each["threads"], f"{each['core_percent']:.4f} %", f"{each['switches_per_s']:.1f}"])
    return "## Idle: all pools, 1,000 snoozing tasks\n\n" + table(
        ["pool", "threads", "of one core", "context switches/s"], rows
    )


def lateness_report(lateness):
    rows = [
        [name, *(f"{lateness[name][f'{which}_ms']:.2f}" for which in ("p50", "p99", "max"))]
        for name in [*(f"{OURS}_{pool}" for pool in LATE), *SEMANTIC]
    ]
    return "## Lateness: all pools idle, 1,000 snoozing tasks, one timer of 2 to 20 ms after the other\n\n" + table(
        ["pool", "p50, ms late", "p99", "max"], rows
    )


def report(figures):
    return "\n".join([floor_report(figures)] + [bench_report(bench, figures) for bench in TITLES if bench != "floor"])


def main():
    say("building the benchmark and its rivals")
    build_crate("executor")
    watch = Watch()
    measured = run_crate("executor")
    run = watch.end()
    idle, lateness = measured["alone"]["idle"], measured["alone"]["lateness"]
    bars, distances, floor = Bars(), measured["complete_at"], measured["floor"]
    seen = {name: [each for each in measured["samples"] if each["distance"] == name] for name in DISTANCES}
    reported = [Figures(seen[name], floor) for name in distances] or [Figures(measured["samples"], floor)]
    first, *others = reported
    set_bars(first, bars)
    for figures, name in zip(others, distances[1:]):
        set_bars(figures, bars, f"_{name}")
    bars.at_most("idle_share_of_a_core", idle[OURS]["core_percent"], 0.1, "%")
    for pool in LATE:
        bars.at_most(f"timer_late_p99_ms_{pool}", lateness[f"{OURS}_{pool}"]["p99_ms"], 1.0, "ms")
    effort = measured["effort"]
    intro = (
        f"{opening(run, filesystem=False)}\n\n{samples_report(reported, effort)} As many pool threads as front threads. "
        f"{', '.join(SEMANTIC)} have tasks as {OURS} has; the others hand over closures and nothing more. A bar is the worst "
        f"of its numbers of threads.\n\n"
        f"{distances_report(seen, distances)}\n\n"
    )
    sections = []
    for figures, name in zip(reported, distances or ["mixed"]):
        if others:
            sections.append(f"# Processors that {DISTANCES[name]}\n")
        sections.append(report(figures))
    sections += [idle_report(idle), lateness_report(lateness)]
    trees = {name: Figures(samples, floor).tree for name, samples in seen.items() if samples}
    data = {**run, "effort": effort, "complete_at": distances, "floor": floor, "samples": trees, **measured["alone"]}
    write_results("executor", "Task pools: make bench-executor", data, intro + "\n".join(sections), bars)


if __name__ == "__main__":
    main()
