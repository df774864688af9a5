#!/usr/bin/env python3
"""make bench-documents: what it takes to read or change a path of a JSON document of 10 KB.

`bench/documents` measures: `kedge-json`, which goes through the text up to the path, beside serde_json, which parses all
of it and writes it again; interleaved, several rounds. This adds the look at the machine, the medians, the bars and the
reports. QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

from harness import Bars, Watch, build_crate, median, opening, run_crate, say, table, write_results

OURS, THEIRS = "kedge", "serde_json"
COMPARED = ["read", "write"]
PLACES = ["first", "middle", "last"]
# The path in the middle of the document, and the one at its end, which is the worst for a walk that starts at the start.
BARS = ["middle", "last"]
SPEEDUP_MIN = 5


class Figures:
    """Samples of each work at each place by each contender, in the order of rounds."""

    def __init__(self, measured):
        self.document_bytes = measured["document_bytes"]
        self.cells = {}
        for sample in measured["samples"]:
            self.cells.setdefault((sample["work"], sample["place"], sample["who"]), []).append(sample)

    def median(self, work, place, who, field="ns"):
        return median(sample[field] for sample in self.cells[work, place, who])

    def speedup(self, work, place):
        """How often ours goes into theirs: of each round, as the two stand side by side there, the median."""
        ours, theirs = self.cells[work, place, OURS], self.cells[work, place, THEIRS]
        return median(their["ns"] / our["ns"] for our, their in zip(ours, theirs, strict=True))

    def operations(self):
        return [(work, place) for work, place, _ in self.cells if work not in COMPARED]


def set_bars(figures, bars):
    for work in COMPARED:
        for place in BARS:
            bars.at_least(f"path_{work}_{place}_vs_serde_json", figures.speedup(work, place), SPEEDUP_MIN, "x")


def beside_serde_json(figures):
    rows = []
    for work in COMPARED:
        for place in PLACES:
            ns = [figures.median(work, place, who) for who in (OURS, THEIRS)]
            allocations = [figures.median(work, place, who, "allocations") for who in (OURS, THEIRS)]
            rows.append(
                [
                    f"{work}, path at the {place} place", *(f"{each:,.0f}" for each in ns),
                    f"{figures.speedup(work, place):.1f}", *(f"{each:,.0f}" for each in allocations),
                ]
            )
    head = ["work", "kedge, ns", "serde_json, ns", "ratio", "kedge, allocations", "serde_json, allocations"]
    return "## Beside serde_json\n\n" + table(head, rows)


def operations(figures):
    rows = []
    for work, place in figures.operations():
        ns = figures.median(work, place, OURS)
        rows.append(
            [
                work, f"`{place}`" if place else "", f"{ns:,.0f}", f"{figures.document_bytes / ns:.2f}",
                f"{figures.median(work, place, OURS, 'allocations'):.0f}",
            ]
        )
    head = ["operation", "path", "ns", "GB/s of the document", "allocations"]
    return "## Each operation\n\n" + table(head, rows)


def main():
    say("building the benchmark")
    build_crate("documents")
    watch = Watch()
    measured = run_crate("documents")
    run = watch.end()
    figures, bars = Figures(measured), Bars()
    set_bars(figures, bars)
    intro = (
        f"{opening(run)}\n\nMedians of {measured['rounds']} rounds. One document of {figures.document_bytes:,} bytes without "
        f"white space. A read returns a copy of the value, a write a new document; the path is parsed each time. Of "
        f"kedge's allocations one is the result's.\n\n"
    )
    data = {
        **run,
        "document_bytes": figures.document_bytes,
        "ns": {
            " ".join(filter(None, key)): [sample["ns"] for sample in samples] for key, samples in figures.cells.items()
        },
    }
    text = intro + beside_serde_json(figures) + "\n" + operations(figures)
    write_results("documents", "Sub-documents: make bench-documents", data, text, bars)


if __name__ == "__main__":
    main()
