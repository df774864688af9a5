#!/usr/bin/env python3
"""make bench-storage: vBuckets' files behind the commit log, and without it.

Parts, each in a file of `storage_parts/`; `python3 bench/storage.py PART...` runs some of them and writes no results:
modes        persisted writes: files closed, files kept open, commit log
flush        FlushVBucket/N: time and memory of one flush
compaction   the tail of persisted writes beside compactions
restart      to the first answer, and to all documents in memory
reads        a data set four times as large as the quota
amplification  bytes written by bytes updated

QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import json
import shutil
import sys
import time
import traceback

import plots
from harness import RESULTS, WORK, Bars, Watch, build, opening, say, stop_all, write_results
from storage_parts import amplification, compaction, flush, modes, reads, restart
from storage_parts.server import NotThere

PARTS = [modes, flush, compaction, restart, reads, amplification]


def run(part, bars):
    """Measures a part. A bar that cannot be measured is missed, and says why."""
    began, already = time.monotonic(), len(bars.rows)
    outcome = {"seconds": None, "why": None, "data": None}
    text = ""
    try:
        outcome["data"] = part.measure()
        text = part.report(outcome["data"], bars)
    except NotThere as missing:
        outcome["why"] = f"not there yet: {missing}"
    except (Exception, SystemExit) as failure:
        # One part that fails does not take the others' figures with it.
        traceback.print_exc()
        outcome["why"] = f"failed: {' '.join(str(failure).split())[-300:]}"
    stop_all()
    shutil.rmtree(WORK / "data", ignore_errors=True)
    outcome["seconds"] = round(time.monotonic() - began, 1)
    say(f"{part.NAME}: {outcome['seconds']} s{'; ' + outcome['why'] if outcome['why'] else ''}")
    known = {row["name"] for row in bars.rows[already:]}
    for name, sign, limit, unit in part.BARS:
        if name not in known:
            bars.absent(name, sign, limit, unit, (outcome["why"] or "not measured").split(":")[0])
    if outcome["why"]:
        text = f"Nothing was measured: {outcome['why']}.\n"
    return outcome, f"## {part.TITLE}\n\n{text}"


def names(value):
    """The same with keys that JSON can have."""
    if isinstance(value, dict):
        return {str(key): names(each) for key, each in value.items()}
    return [names(each) for each in value] if isinstance(value, list) else value


def main():
    wanted = sys.argv[1:]
    unknown = set(wanted) - {part.NAME for part in PARTS}
    if unknown:
        sys.exit(f"there is no part {', '.join(sorted(unknown))}\n{__doc__}")
    parts = [part for part in PARTS if not wanted or part.NAME in wanted]
    build("bare_reads")
    if flush in parts:
        flush.build()
    watch, bars = Watch(), Bars()
    outcomes, sections, drawn = {}, [], []
    for part in parts:
        outcome, section = run(part, bars)
        outcomes[part.NAME] = outcome
        if outcome["data"] and not outcome["why"] and hasattr(part, "plots"):
            drawn += part.plots(outcome["data"])
        sections.append(section)
    about = watch.end()
    intro = f"{opening(about, memory=True)} The load generator shares the machine with the servers.\n\n"
    if wanted:
        print(intro + "\n".join(sections))
        print("\n".join(bars.lines()))
        (WORK / "storage-parts.json").write_text(json.dumps(names(outcomes), indent=1))
    else:
        data = {**about, "parts": names(outcomes)}
        RESULTS.mkdir(parents=True, exist_ok=True)
        for name, title, at, series in drawn:
            (RESULTS / f"storage-{name}.svg").write_text(plots.lines(title, at, series))
        write_results("storage", "Storage: make bench-storage", data, intro + "\n".join(sections), bars)
    if any((outcome["why"] or "").startswith("failed") for outcome in outcomes.values()):
        sys.exit("a part of the benchmark failed; its bars are missed")


if __name__ == "__main__":
    main()
