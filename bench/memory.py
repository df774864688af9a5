#!/usr/bin/env python3
"""make bench-memory: resident bytes per item, and of an idle server.

Parts, each in a file of `memory_parts/`; `python3 bench/memory.py PART...` runs some of them and writes no results:
items        bytes per item beyond key and value: after load, after churn, after a restart; beside memcached, Redis, Valkey
idle         an idle server

QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import parts
from harness import build
from memory_parts import idle, items


def prepare(_wanted):
    build()


if __name__ == "__main__":
    parts.main("memory", "Memory: make bench-memory", [items, idle], __doc__, prepare)
