"""Stages changes in a transaction, says so, and never commits: it waits until it is killed.

Arguments: a connection string, and the keys of what to insert, to replace and to remove.
"""

import sys
from datetime import timedelta
from types import SimpleNamespace

from couchbase.options import TransactionConfig

from conftest import connect, open_bucket

# A transaction that takes longer has expired, and anybody may take back what it has staged.
LOST_AFTER = timedelta(seconds=2)

if __name__ == "__main__":
    to, inserted, replaced, removed = sys.argv[1:]
    config = TransactionConfig(timeout=LOST_AFTER, cleanup_lost_attempts=False, cleanup_client_attempts=False)
    cluster = connect(SimpleNamespace(connection_string=to), transactions=config)
    documents = open_bucket(cluster, to.count(",") + 1).default_collection()

    def work(ctx):
        ctx.insert(documents, inserted, {"n": 30})
        ctx.replace(ctx.get(documents, replaced), {"n": 10})
        ctx.remove(ctx.get(documents, removed))
        print("staged", flush=True)
        sys.stdin.read()

    cluster.transactions.run(work)
