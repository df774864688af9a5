"""Benchmarks in parts: each is a module with NAME, TITLE, BARS, measure() and report(measured, bars)."""

import json
import shutil
import sys
import time
import traceback

import plots
from harness import RESULTS, WORK, Bars, Watch, opening, say, stop_all, write_results


class NotThere(Exception):
    """Something that is to be measured is not in this server."""


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
        return {key if isinstance(key, str) else str(key): names(each) for key, each in value.items()}
    return [names(each) for each in value] if isinstance(value, list) else value


def replaced(markdown, title, section):
    """The results in which `section` replaces the one under this title."""
    before, heading, rest = markdown.partition(f"\n## {title}\n")
    if not heading:
        raise ValueError(f"the results have no section '{title}'")
    _, next_heading, after = rest.partition("\n## ")
    return f"{before}\n{section.rstrip()}\n{next_heading}{after}"


def retake(name, title, about, taken, bars):
    """Replaces the parts that were `taken`, as (part, outcome, section), and their bars in the results of an earlier run. Each
    of their sections says in which state the machine was."""
    document = json.loads((RESULTS / f"{name}.json").read_text())
    markdown = (RESULTS / f"{name}.md").read_text().partition("\n\n")[2].partition("\n## Bars\n")[0]
    for part, outcome, section in taken:
        heading, text = section.split("\n", 1)
        markdown = replaced(markdown, part.TITLE, f"{heading}\n\nTaken later than the other parts. {opening(about, memory=True)}\n{text}")
        document["parts"][part.NAME] = names({**outcome, **about})
    new = {row["name"]: row for row in bars.rows}
    merged = Bars()
    merged.rows = [new.pop(row["name"], row) for row in document.pop("bars")] + list(new.values())
    write_results(name, title, document, markdown, merged)


def write_plots(name, drawn):
    for drawing, heading, at, series in drawn:
        (RESULTS / f"{name}-{drawing}.svg").write_text(plots.lines(heading, at, series))


def main(name, title, parts, usage, prepare):
    """Runs the parts that the command line names and prints what they measured, or all and writes the results. `--retake` before
    the names also replaces those parts in the results of an earlier run. `prepare` gets the list and builds what it needs."""
    wanted = sys.argv[1:]
    retaken = wanted[:1] == ["--retake"]
    if retaken:
        wanted = wanted[1:]
        if not wanted or not (RESULTS / f"{name}.json").exists():
            sys.exit(f"--retake needs the names of parts, and the results of a whole run\n{usage}")
    unknown = set(wanted) - {part.NAME for part in parts}
    if unknown:
        sys.exit(f"there is no part {', '.join(sorted(unknown))}\n{usage}")
    parts = [part for part in parts if not wanted or part.NAME in wanted]
    prepare(parts)
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
        (WORK / f"{name}-parts.json").write_text(json.dumps(names(outcomes), indent=1))
        if retaken:
            write_plots(name, drawn)
            retake(name, title, about, [(part, outcomes[part.NAME], text) for part, text in zip(parts, sections)], bars)
        else:
            print("\n".join(bars.lines()))
    else:
        data = {**about, "parts": names(outcomes)}
        RESULTS.mkdir(parents=True, exist_ok=True)
        write_plots(name, drawn)
        write_results(name, title, data, intro + "\n".join(sections), bars)
    if any((outcome["why"] or "").startswith("failed") for outcome in outcomes.values()):
        sys.exit("a part of the benchmark failed; its bars are missed")
