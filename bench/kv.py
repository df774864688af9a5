#!/usr/bin/env python3
"""make bench-kv: one node of Kedge beside memcached, Redis and Valkey.

Parts, each in a file of `kv_parts/`; `python3 bench/kv.py PART...` runs some of them and writes no results:
plain        GET and SET beside memcached, text and binary, values of three sizes
mix          90 GETs and 10 SETs beside memcached, of uniform and of Zipfian keys
memtier      GET and SET beside memcached, by memtier_benchmark
persisted    persisted SETs beside Redis, Valkey and a bare loop
growth       processor time from 100,000 to 10 million items, beside memcached
scale        10,000 connections, 64 buckets
process      start, idle memory, restart, memory per item

QUICK=1 is a short run. See bench/README.md for what is measured and how.
"""

import parts
from harness import build
from kv_parts import growth, memtier, mix, persisted, plain, process, scale


def prepare(_wanted):
    build("bare_loop")


if __name__ == "__main__":
    parts.main("kv", "One node: make bench-kv", [plain, mix, memtier, persisted, growth, scale, process], __doc__, prepare)
