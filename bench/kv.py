#!/usr/bin/env python3
"""make bench-kv: one node of Kedge beside memcached, Redis and Valkey.

Parts, each in a file of `kv_parts/`; `python3 bench/kv.py PART...` runs some of them and writes no results:
plain        GET and SET beside memcached, text and binary, values of three sizes
mix          90 GETs and 10 SETs beside memcached, of uniform and of Zipfian keys
memtier      GET and SET beside memcached, by memtier_benchmark
persisted    persisted SETs beside Redis, Valkey and a bare loop
process      start, idle memory, restart, memory per item

QUICK=1 is a short run. See bench/README.md for what is measured and how.
"""

import parts
from harness import build
from kv_parts import memtier, mix, persisted, plain, process


def prepare(_wanted):
    build("bare_loop")


if __name__ == "__main__":
    parts.main("kv", "One node: make bench-kv", [plain, mix, memtier, persisted, process], __doc__, prepare)
