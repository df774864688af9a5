"""Distributed transactions of the SDK, on one node and on two: staged changes, commit, rollback, conflicts.

They stand on extended attributes, macros, documents created as deleted, CAS and durable writes.
"""

import threading
import uuid
from datetime import timedelta

import couchbase.subdocument as SD
import pytest
from couchbase.durability import ServerDurability
from couchbase.exceptions import (
    DocumentExistsException,
    DocumentNotFoundException,
    PathNotFoundException,
    TransactionFailed,
)
from couchbase.kv_range_scan import PrefixScan
from couchbase.options import LookupInOptions, ScanOptions, TransactionOptions
from couchbase.transactions import TransactionKeyspace

import deadline
import kedge_cluster
import kedge_server
from conftest import connect, open_bucket
from test_durability import LEVELS


@pytest.fixture(scope="module", params=[1, 2], ids=lambda count: f"{count} nodes")
def own(request):
    """A cluster of one node, or of two with a replica: the SDK's connection to it."""
    started = kedge_server.Server().start() if request.param == 1 else kedge_cluster.Cluster(2, 1)
    try:
        cluster = connect(started)
        open_bucket(cluster, request.param)
        yield cluster
        cluster.close()
    finally:
        started.remove()


@pytest.fixture
def documents(own):
    return own.bucket(kedge_server.BUCKET).default_collection()


def run(cluster, work, **options):
    """Runs `work` as a transaction, with time enough on a busy machine."""
    return cluster.transactions.run(work, TransactionOptions(timeout=timedelta(seconds=60), **options))


def run_again(cluster, work):
    """As an application does: this SDK tells of a conflict with a failure, and leaves it to its caller to try again."""

    def done():
        try:
            run(cluster, work)
            return True
        except TransactionFailed:
            return False

    deadline.until(done, "the transaction commits")


def nothing_is_staged(collection, name):
    found = collection.lookup_in(name, [SD.get("txn", xattr=True)], LookupInOptions(access_deleted=True))
    with pytest.raises(PathNotFoundException):
        found.content_as[dict](0)


def test_commit(own, documents, key):
    inserted, replaced, removed = f"{key}-i", f"{key}-r", f"{key}-d"
    documents.upsert(replaced, {"n": 1})
    documents.upsert(removed, {"n": 2})

    def work(ctx):
        ctx.insert(documents, inserted, {"n": 3})
        ctx.replace(ctx.get(documents, replaced), {"n": 4})
        ctx.remove(ctx.get(documents, removed))
        # The transaction sees its changes, and nobody else does.
        assert ctx.get(documents, inserted).content_as[dict] == {"n": 3}
        assert ctx.get(documents, replaced).content_as[dict] == {"n": 4}
        with pytest.raises(DocumentNotFoundException):
            ctx.get(documents, removed)
        assert not documents.exists(inserted).exists
        assert documents.get(replaced).content_as[dict] == {"n": 1}
        assert documents.get(removed).content_as[dict] == {"n": 2}

    assert run(own, work).unstaging_complete
    assert documents.get(inserted).content_as[dict] == {"n": 3}
    assert documents.get(replaced).content_as[dict] == {"n": 4}
    assert not documents.exists(removed).exists
    for name in (inserted, replaced):
        nothing_is_staged(documents, name)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_at_every_level(own, documents, key, level):
    inserted, replaced = f"{key}-i", f"{key}-r"
    documents.upsert(replaced, {"n": 1})

    def work(ctx):
        ctx.insert(documents, inserted, {"n": 2})
        ctx.replace(ctx.get(documents, replaced), {"n": 3})

    assert run(own, work, durability=ServerDurability(level)).unstaging_complete
    assert documents.get(inserted).content_as[dict] == {"n": 2}
    assert documents.get(replaced).content_as[dict] == {"n": 3}
    for name in (inserted, replaced):
        nothing_is_staged(documents, name)


def test_metadata_in_a_collection_of_its_own(own, documents, key):
    """What transactions note of their progress is there, and documents of two other collections change together."""
    bucket = own.bucket(kedge_server.BUCKET)
    manager = bucket.collections()
    name = f"s-{uuid.uuid4().hex[:12]}"
    manager.create_scope(name)
    for each in ("a", "metadata"):
        manager.create_collection(name, each)
    a, metadata = (bucket.scope(name).collection(each) for each in ("a", "metadata"))
    a.upsert(key, {"n": 1})
    documents.upsert(key, {"n": 2})

    def work(ctx):
        for collection in (a, documents):
            found = ctx.get(collection, key)
            ctx.replace(found, {"n": found.content_as[dict]["n"] + 10})

    assert list(metadata.scan(PrefixScan("_txn:"), ScanOptions(ids_only=True))) == []
    keyspace = TransactionKeyspace(coll=metadata)
    assert run(own, work, metadata_collection=keyspace).unstaging_complete
    assert a.get(key).content_as[dict] == {"n": 11}
    assert documents.get(key).content_as[dict] == {"n": 12}
    records = [item.id for item in metadata.scan(PrefixScan("_txn:"), ScanOptions(ids_only=True))]
    assert any(record.startswith("_txn:atr-") for record in records), records
    manager.drop_scope(name)


def test_rollback(own, documents, key):
    inserted, replaced, removed = f"{key}-i", f"{key}-r", f"{key}-d"
    documents.upsert(replaced, {"n": 1})
    documents.upsert(removed, {"n": 2})

    class Enough(Exception):
        pass

    def work(ctx):
        ctx.insert(documents, inserted, {"n": 3})
        ctx.replace(ctx.get(documents, replaced), {"n": 4})
        ctx.remove(ctx.get(documents, removed))
        raise Enough

    with pytest.raises(TransactionFailed):
        run(own, work)
    assert not documents.exists(inserted).exists
    assert documents.get(replaced).content_as[dict] == {"n": 1}
    assert documents.get(removed).content_as[dict] == {"n": 2}
    for name in (replaced, removed):
        nothing_is_staged(documents, name)
    # The key of what was staged is free again.
    documents.insert(inserted, {"n": 5})


def test_what_a_transaction_may_not_do(own, documents, key):
    stored, missing = f"{key}-s", f"{key}-m"
    documents.upsert(stored, {"n": 1})

    def work(ctx):
        with pytest.raises(DocumentNotFoundException):
            ctx.get(documents, missing)
        with pytest.raises(DocumentExistsException):
            ctx.insert(documents, stored, {"n": 2})
        ctx.replace(ctx.get(documents, stored), {"n": 3})

    run(own, work)
    assert documents.get(stored).content_as[dict] == {"n": 3}
    assert not documents.exists(missing).exists


def test_insert_after_remove(own, documents, key):
    documents.upsert(key, {"n": 1})
    documents.remove(key)
    run(own, lambda ctx: ctx.insert(documents, key, {"n": 2}))
    assert documents.get(key).content_as[dict] == {"n": 2}

    def work(ctx):
        ctx.remove(ctx.get(documents, key))
        ctx.insert(documents, key, {"n": 3})

    run(own, work)
    assert documents.get(key).content_as[dict] == {"n": 3}


def test_conflicting_transactions_take_turns(own, documents, key):
    """Each reads and writes both documents, so what one of them loses shows in the sums."""
    one, other = f"{key}-1", f"{key}-2"
    documents.upsert(one, {"n": 100})
    documents.upsert(other, {"n": 0})
    writers, each = 3, 4
    failures = []

    def move(ctx):
        source, target = ctx.get(documents, one), ctx.get(documents, other)
        ctx.replace(source, {"n": source.content_as[dict]["n"] - 1})
        ctx.replace(target, {"n": target.content_as[dict]["n"] + 1})

    def writer():
        try:
            for _ in range(each):
                run_again(own, move)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=writer) for _ in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert documents.get(one).content_as[dict] == {"n": 100 - writers * each}
    assert documents.get(other).content_as[dict] == {"n": writers * each}


def test_a_write_between_is_not_lost(own, documents, key):
    documents.upsert(key, {"n": 1})
    attempts = []

    def work(ctx):
        found = ctx.get(documents, key)
        attempts.append(found.content_as[dict]["n"])
        if len(attempts) == 1:
            documents.upsert(key, {"n": 10})
        ctx.replace(found, {"n": found.content_as[dict]["n"] + 1})

    run_again(own, work)
    assert attempts == [1, 10]
    assert documents.get(key).content_as[dict] == {"n": 11}
