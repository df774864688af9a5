"""FlushVBucket: N changes of one vBucket brought into its file (`bench/storage` measures)."""

import subprocess

from harness import WORK, build_crate, median, run_crate, say, table

NAME, TITLE = "flush", "FlushVBucket"
MOST = 1_000_000
MODES = ["direct", "logged"]
KINDS = [f"{mode}-{limit}" for mode in MODES for limit in ("off", "on")]
BARS = [
    (f"flush_{mode}_{MOST}_{what}", sign, limit, unit) for mode in MODES
    for what, sign, limit, unit in (("peak_bytes_per_item", "<=", 8.0, "B"), ("limit_on_vs_off", ">=", 1.3, "x"))
]


def build():
    build_crate("storage")


def measure():
    say(TITLE)
    measured, samples = {"rounds": 1}, []
    while len(samples) < measured["rounds"] * len(KINDS):
        turn = len(samples)
        # A process of its own: what another flush has left of memory, and how much of it, would decide.
        kind = KINDS[(turn + turn // len(KINDS)) % len(KINDS)]
        words = ["--dir", WORK / "data", "--round", turn // len(KINDS), kind]
        # The table is not among the results: ours has the same figures.
        measured = run_crate("storage", *words, timeout=600, stdout=subprocess.DEVNULL)
        samples.append(measured["samples"])
    return {**measured, "samples": sum(samples, [])}


class Figures:
    """Of each round the median, by mode, limit and number of items."""

    def __init__(self, measured):
        self.rounds = {}
        for sample in measured["samples"]:
            key = (sample["mode"], sample["limited"], sample["items"])
            self.rounds.setdefault(key, {}).setdefault(sample["round"], []).append(sample)
        self.items = sorted({items for _, _, items in self.rounds})

    def each(self, mode, limited, items, field):
        rounds = self.rounds[mode, limited, items].values()
        return [median(sample[field] for sample in of_round) for of_round in rounds]

    def per_s(self, mode, limited, items):
        return items * 1e6 / median(self.each(mode, limited, items, "wall_us"))

    def peak_bytes(self, mode, limited, items):
        return median(self.each(mode, limited, items, "peak_bytes"))

    def speed_up(self, mode, items):
        """How much faster the limit makes it, round by round."""
        off, on = (self.each(mode, limited, items, "wall_us") for limited in (False, True))
        return median(before / after for before, after in zip(off, on))


def report(measured, bars):
    figures = Figures(measured)
    rows = []
    for mode in MODES:
        for limited in (False, True):
            for items in figures.items:
                peak = figures.peak_bytes(mode, limited, items)
                cpu_us = median(figures.each(mode, limited, items, "cpu_us")) / items
                rows.append(
                    [
                        mode, "on" if limited else "off", f"{items:,}", f"{figures.per_s(mode, limited, items):,.0f}",
                        f"{cpu_us:.2f}", f"{peak:,.0f}", f"{peak / items:,.1f}",
                        f"{median(figures.each(mode, limited, items, 'commits')):,.0f}",
                        f"{figures.speed_up(mode, items):.2f}" if limited else "",
                    ]
                )
        bars.at_most(f"flush_{mode}_{MOST}_peak_bytes_per_item", figures.peak_bytes(mode, True, MOST) / MOST, 8.0, "B")
        bars.at_least(f"flush_{mode}_{MOST}_limit_on_vs_off", figures.speed_up(mode, MOST), 1.3, "x")
    head = [
        "mode", "limit", "N", "items/s", "CPU us an item", "PeakFlushBytes", "PeakBytesPerItem", "commits", "limit on vs. off",
    ]
    return (
        f"N new documents wait in one vBucket, with keys of {measured['key_bytes']} bytes and values of "
        f"{measured['value_bytes']} random ones; its file is there and open. One flush brings them all in: *direct* as "
        f"without a log, *logged* as an apply of what the log has. Limit on: as the server's, 4,096 items and 4 MiB a commit "
        f"when direct, 20,000 and 16 MiB when logged; commits share their syncs up to 16 MiB. Peaks are the most that is allocated at a time beyond the least before it, "
        f"so without the queued items. Medians of "
        f"{measured['rounds']} rounds.\n\n" + table(head, rows)
    )


def plots(measured):
    """Lines: items/s, and peak bytes an item, by N."""
    figures = Figures(measured)
    series = {
        f"{mode}, limit {'on' if limited else 'off'}": (mode, limited) for mode in MODES for limited in (False, True)
    }
    speed = {name: [figures.per_s(*key, items) for items in figures.items] for name, key in series.items()}
    peak = {name: [figures.peak_bytes(*key, items) / items for items in figures.items] for name, key in series.items()}
    at = [f"{items:,}" for items in figures.items]
    return [("flush-speed", "FlushVBucket/N: items/s", at, speed), ("flush-memory", "FlushVBucket/N: PeakBytesPerItem", at, peak)]
