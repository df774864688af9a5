"""Resident bytes per item beyond key and value."""

import os

from harness import QUICK, say, table
from node import KEY_BYTES, load, size

from memory_parts.servers import KedgeServer, Memcached, all_servers, versions

NAME, TITLE = "items", "Bytes per item beyond key and value"
VALUES = [256] if QUICK else [32, 256, 1024]
COUNTS = [1_000_000] if QUICK else [1_000_000, 10_000_000]
# How often a document is overwritten, on average, by the churn.
OVERWRITES = 2 if QUICK else 10
CONNECTIONS, PIPELINE = 4, 32
# What a rival may need for each item beyond key and value. A cell that does not fit into the machine is left out.
OVERHEAD_MAX = 400
MEMORY_SHARE_MAX = 0.8
LIMIT_BYTES = 64.0
CHURN_MAX = 1.15
PHASES = ["loaded", "settled", "churned", "restarted"]


def cells():
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for count in COUNTS:
        for value in VALUES:
            if count * (KEY_BYTES + value + OVERHEAD_MAX) <= memory * MEMORY_SHARE_MAX:
                yield count, value


def bar_names(count, value):
    return [f"{what}_{value}b_{count // 1_000_000}m" for what in ("bytes_per_item", "vs_memcached", "churn_vs_fresh")]


BARS = [
    bar
    for count, value in cells()
    for bar in zip(bar_names(count, value), ["<="] * 3, [LIMIT_BYTES, 1.0, CHURN_MAX], ["B", "x", "x"], strict=True)
]


def churn(url, count, value):
    """Overwrites documents in random order with values of random sizes, which have the same mean as before."""
    sets = count * OVERWRITES // CONNECTIONS
    report = load(
        url, "--num-items", count, "--num-threads", CONNECTIONS, "--pipeline", PIPELINE, "--min-size", value // 2,
        "--max-size", value + value // 2, "--random-body", "--set-pct", 100, "--no-population", "--num-cycles", sets,
    )
    if report["errors"]:
        say(f"  {report['errors_by_kind']}")
    return report["ops"]


def one_cell(kind, count, value):
    """Resident bytes of one server in each phase."""
    say(f"{kind.NAME}: {count:,} items of {value} bytes")
    server = kind()
    server.settle()
    resident = {"empty": server.process.resident_bytes()}

    def look(phase):
        resident[phase] = server.process.resident_bytes()

    load(
        server.url, "--num-items", count, "--num-threads", CONNECTIONS, *size(value), "--num-cycles", 1, "--random-body"
    )
    look("loaded")
    server.settle()
    look("settled")
    sets = churn(server.url, count, value)
    server.settle()
    look("churned")
    if kind.KEEPS:
        server.restart()
        look("restarted")
    server.stop()
    return {"items": count, "value_bytes": value, "server": kind.NAME, "churn_sets": sets, "resident_bytes": resident}


def measure():
    samples = [one_cell(kind, count, value) for count, value in cells() for kind in all_servers()]
    return {"versions": versions(), "cells": samples}


def beyond(cell, phase):
    """Resident bytes per item beyond key and value."""
    resident = cell["resident_bytes"]
    if phase not in resident:
        return None
    return (resident[phase] - resident["empty"]) / cell["items"] - KEY_BYTES - cell["value_bytes"]


def growth(cell, phase):
    return cell["resident_bytes"][phase] - cell["resident_bytes"]["empty"]


def set_bars(of, bars):
    for count, value in cells():
        names = bar_names(count, value)
        ours, theirs = of[count, value, KedgeServer.NAME], of.get((count, value, Memcached.NAME))
        bars.at_most(names[0], beyond(ours, "settled"), LIMIT_BYTES, "B")
        if theirs:
            bars.at_most(names[1], beyond(ours, "settled") / beyond(theirs, "settled"), 1.0, "x")
        bars.at_most(names[2], growth(ours, "churned") / growth(ours, "settled"), CHURN_MAX, "x")


def report(measured, bars):
    of = {(cell["items"], cell["value_bytes"], cell["server"]): cell for cell in measured["cells"]}
    set_bars(of, bars)
    rows = []
    for (count, value, server), cell in of.items():
        figures = [beyond(cell, phase) for phase in PHASES]
        texts = ["" if figure is None else f"{figure:.0f}" for figure in figures]
        rows.append([f"{count:,}", value, server, *texts, f"{growth(cell, 'churned') / growth(cell, 'settled'):.2f}"])
    rivals = ", ".join(measured["versions"].values()) or "no rivals"
    intro = (
        f"Beside {rivals}. Keys have {KEY_BYTES} bytes. *Loaded*: when the last SET was answered. *Settled*: when all "
        f"documents are in the files and the defragmenter moves none. *Churned*: after {OVERWRITES} overwrites for each document, in random order, with "
        f"sizes from half to one and a half times the first one. The ratio is of all resident bytes.\n\n"
    )
    return intro + table(["items", "value bytes", "server", *PHASES, "churned / settled"], rows)
