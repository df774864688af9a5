#!/usr/bin/env python3
"""make bench-storage: vBuckets' files behind the commit log, and without it.

Parts, each in a file of `storage_parts/`; `python3 bench/storage.py PART...` runs some of them and writes no results:
modes        persisted writes: files closed, files kept open, commit log
flush        FlushVBucket/N: time and memory of one flush
compaction   the tail of persisted writes beside compactions
restart      to the first answer, and to all documents in memory
stop         from SIGTERM to the end of the process
reads        a data set four times as large as the quota
amplification  bytes written by bytes updated
encryption   processor time of flushes, and the tail of persisted writes, with encryption at rest and without

QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import parts
from harness import build
from storage_parts import amplification, compaction, encryption, flush, modes, reads, restart, stop


def prepare(wanted):
    build("bare_reads")
    if flush in wanted:
        flush.build()


if __name__ == "__main__":
    parts.main(
        "storage", "Storage: make bench-storage", [modes, flush, compaction, restart, stop, reads, amplification, encryption],
        __doc__, prepare,
    )
