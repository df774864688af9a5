#!/usr/bin/env python3
"""make bench-couchstore: what saving, reading and compacting couchstore files costs.

`bench/couchstore` measures: counted allocations and I/O, processor time, several rounds on a disk and on a tmpfs. This
adds the look at the machine, the medians, the original library's figures, the bars and the reports. QUICK=1 is a run
under two minutes. See bench/README.md for what is measured and how.
"""

from harness import WORK, Bars, Watch, build_crate, median, opening, run_crate, say, table, write_results

CPU_MAX, AMPLIFICATION_MAX = 0.6, 0.8
SAVE_PEAK_BYTES_MAX, COMPACT_PEAK_MIB_MAX, GET_READS_MAX = 64, 64, 2

# The original library, measured once on a machine like this one (2 cores; ext4, and a tmpfs), best of several. Items/s
# of its single-threaded tools; `cpu_us` an item where its processor time is known. Where it is not, a figure of a
# tmpfs, or one of reading what is cached, is taken for it: such a run does nothing but compute.
ORIGINAL = {
    ("insert", 1_000): {"disk": 507e3, "tmpfs": 799e3, "peak_bytes": 453},
    ("insert", 100_000): {"disk": 540e3, "tmpfs": 584e3, "peak_bytes": 309},
    ("insert", 1_000_000): {"disk": 389e3, "tmpfs": 487e3, "peak_bytes": 308},
    ("update", 1_000): {"disk": 36e3, "cpu_us": 25, "amplification": 5.3, "writes": 2, "reads": 4},
    ("update", 10_000): {"disk": 45e3, "cpu_us": 15, "amplification": 3.7, "writes": 2, "reads": 4},
    ("update", 100_000): {"disk": 98e3, "cpu_us": 8.3, "amplification": 2.2, "writes": 2, "reads": 4},
    # 4.3 to 5 s for 1,000,000.
    ("compact", 0): {"disk": 189e3, "tmpfs": 223e3, "cpu_us": 4.3, "peak_bytes": 88.5},
    ("scan_bodies", 0): {"disk": 2.64e6},
    ("scan_metadata", 0): {"disk": 5.4e6},
    ("get", 0): {"disk": 120e3, "reads": 4.9},
    ("multi_get", 1_000): {"disk": 190e3},
}

TITLES = {
    "insert": "insert into an empty file",
    "update": "update random keys of 1 M, file opened for it",
    "update_again": "update random keys of 1 M, file stays open",
    "compact": "compact 1 M",
    "open": "open and close, to read",
    "open_to_append": "open and close, to append",
    "scan_bodies": "scan by seqno, with bodies",
    "scan_metadata": "scan by seqno, metadata only",
    "get": "random get",
    "multi_get": "multi-get",
}
FIELDS = [
    "cpu_us", "wall_us", "peak_bytes", "allocations", "reads", "read_bytes", "writes", "small_writes", "written_bytes", "syncs",
]
# Works whose size is a number of documents of a batch.
SIZED = {"insert", "update", "update_again", "multi_get"}


# ---- measuring


class Figures:
    """What each work of each size took on each site: of each round the median, per item."""

    def __init__(self, measured):
        self.document_bytes = measured["document_bytes"]
        rounds = {}
        for sample in measured["samples"]:
            key = (sample["site"], sample["work"], sample["size"])
            rounds.setdefault(key, {}).setdefault(sample["round"], []).append(sample)
        self.cells = {
            key: {
                field: [median(sample[field] / sample["items"] for sample in each) for each in of_cell.values()]
                for field in FIELDS
            }
            for key, of_cell in rounds.items()
        }
        self.items = {key: next(iter(of_cell.values()))[0]["items"] for key, of_cell in rounds.items()}

    def has(self, site):
        return any(key[0] == site for key in self.cells)

    def sizes(self, work):
        return sorted({size for _, name, size in self.cells if name == work})

    def each(self, site, work, size, field):
        """The median of the rounds."""
        return median(self.cells[site, work, size][field])

    def cpu_us(self, site, work, size):
        return self.each(site, work, size, "cpu_us")

    def per_s(self, site, work, size):
        return 1e6 / self.each(site, work, size, "wall_us")

    def amplification(self, site, work, size):
        return self.each(site, work, size, "written_bytes") / self.document_bytes

    def peak_mib(self, site, work, size):
        return self.each(site, work, size, "peak_bytes") * self.items[site, work, size] / (1 << 20)


def original_cpu(work, size):
    """Microseconds of processor time an item, and whose CPU time of ours stands beside it: the site."""
    row = ORIGINAL[work, size]
    if "cpu_us" in row:
        return row["cpu_us"], "disk"
    if "tmpfs" in row:
        return 1e6 / row["tmpfs"], "tmpfs"
    return 1e6 / row["disk"], "disk"


# ---- bars


def label(work, size):
    return f"{work}_{size}" if work in SIZED else work


def set_bars(figures, bars):
    for work, size in ORIGINAL:
        theirs, site = original_cpu(work, size)
        if figures.has(site):
            ratio = figures.cpu_us(site, work, size) / theirs
            bars.at_most(f"{label(work, size)}_cpu_vs_original", ratio, CPU_MAX, "x")
    for (work, size), row in ORIGINAL.items():
        if "amplification" in row:
            ratio = figures.amplification("disk", work, size) / row["amplification"]
            bars.at_most(f"{label(work, size)}_amplification_vs_original", ratio, AMPLIFICATION_MAX, "x")
    # With interior nodes in memory before: the cache of an open file has a bound of its own.
    for work, name in (("insert", "insert"), ("update", "update_again")):
        for size in (size for known, size in ORIGINAL if known == work):
            peak = figures.each("disk", name, size, "peak_bytes")
            bars.at_most(f"{label(name, size)}_peak_bytes_an_item", peak, SAVE_PEAK_BYTES_MAX, "B")
    bars.at_most("compact_peak", figures.peak_mib("disk", "compact", 0), COMPACT_PEAK_MIB_MAX, "MiB")
    bars.at_most("get_reads", figures.each("disk", "get", 0, "reads"), GET_READS_MAX)


# ---- reports


def thousands(value):
    return f"{value / 1e3:,.0f}" if value >= 1e4 else f"{value / 1e3:,.2f}"


def small(value):
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def name_of(work, size):
    if work not in SIZED:
        return TITLES[work]
    return f"{TITLES[work]}, N = {size:,}"


def beside_the_original(figures):
    rows = []
    for (work, size), row in ORIGINAL.items():
        theirs, site = original_cpu(work, size)
        if not figures.has(site):
            continue
        ours = figures.cpu_us(site, work, size)
        speeds = [f"{thousands(row[site])} on {site}" for site in ("disk", "tmpfs") if site in row]
        our_speeds = [
            f"{thousands(figures.per_s(site, work, size))} on {site}" for site in ("disk", "tmpfs")
            if site in row and figures.has(site)
        ]
        more = []
        if "amplification" in row:
            measured = figures.amplification("disk", work, size)
            more.append(f"amplification {measured:.2f}, not {row['amplification']} ({measured / row['amplification']:.2f}x)")
        if "peak_bytes" in row and work == "insert":
            more.append(f"peak {figures.each('disk', work, size, 'peak_bytes'):.0f} B an item, not {row['peak_bytes']}")
        if "peak_bytes" in row and work == "compact":
            more.append(f"peak {figures.peak_mib('disk', work, size):.1f} MiB, not {row['peak_bytes']} MB")
        if "writes" in row:
            more.append(f"{figures.each('disk', work, size, 'small_writes'):.3f} small writes an item, not {row['writes']}")
        if "reads" in row:
            more.append(f"{figures.each('disk', work, size, 'reads'):.2f} reads an item, not {row['reads']}")
        rows.append(
            [
                name_of(work, size), " · ".join(speeds), " · ".join(our_speeds), f"{theirs:.2f}", f"{ours:.2f} on {site}",
                f"{ours / theirs:.2f}", "; ".join(more),
            ]
        )
    head = ["work", "original, thousand/s", "kedge, thousand/s", "original, CPU us", "kedge, CPU us", "CPU ratio", "more"]
    return (
        "## Beside the original library\n\nThe original's figures were measured once on a machine like this, best of several; "
        "they are quoted, not measured here. Its CPU time is known of updates and compaction. Of the others wall time per item "
        "is taken for it, as its tools have one thread: of inserts on a tmpfs, where nothing has to be waited for, of reads "
        "from the page cache.\n\n" + table(head, rows)
    )


def site_report(site, figures):
    rows = []
    for work in TITLES:
        for size in figures.sizes(work):
            if (site, work, size) not in figures.cells:
                continue
            each = lambda field: figures.each(site, work, size, field)
            rows.append(
                [
                    name_of(work, size), f"{each('cpu_us'):.3f}", f"{each('wall_us'):.3f}",
                    thousands(figures.per_s(site, work, size)),
                    f"{figures.amplification(site, work, size):.2f}" if each("written_bytes") else "",
                    *(small(each(field)) for field in ("writes", "small_writes", "reads", "read_bytes", "syncs")),
                    small(each("peak_bytes")), f"{figures.peak_mib(site, work, size):.2f}", small(each("allocations")),
                ]
            )
    head = [
        "work, per item", "CPU us", "wall us", "thousand/s", "amplification", "writes", "of up to 4 KiB", "reads",
        "bytes read", "syncs", "peak B", "peak MiB in all", "allocations",
    ]
    return f"## On a {site}\n\n" + table(head, rows)


def main():
    say("building the benchmark")
    build_crate("couchstore")
    watch = Watch()
    measured = run_crate("couchstore", "--dir", WORK / "data")
    run = watch.end()
    figures, bars = Figures(measured), Bars()
    set_bars(figures, bars)
    intro = (
        f"{opening(run)}\n\nMedians of {measured['rounds']} rounds. Documents of 512 random bytes, keys of 21, metadata of 18; "
        f"a save is documents, local documents and commit. All is in the page cache. Amplification is bytes written by bytes "
        f"of documents ({figures.document_bytes} each). Peaks are what is allocated beyond what was before, the batch among that.\n\n"
    )
    sections = [beside_the_original(figures)]
    sections += [site_report(site, figures) for site in ("disk", "tmpfs") if figures.has(site)]
    data = {
        **run,
        "original": {label(*key): row for key, row in ORIGINAL.items()},
        "per_item": {f"{site} {label(work, size)}": cell for (site, work, size), cell in figures.cells.items()},
    }
    write_results("couchstore", "Couchstore files: make bench-couchstore", data, intro + "\n".join(sections), bars)


if __name__ == "__main__":
    main()
