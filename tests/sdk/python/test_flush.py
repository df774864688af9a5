"""Scans, reads and restarts around a flush: a flush is one point in the history of a bucket."""

from datetime import timedelta

from couchbase.durability import Durability, ServerDurability
from couchbase.kv_range_scan import RangeScan
from couchbase.management.buckets import BucketSettings
from couchbase.mutation_state import MutationState
from couchbase.options import ScanOptions, UpsertMultiOptions

import deadline
import kedge_server
from conftest import connect
from test_restart import wait_for_reconnect

PERSISTED = ServerDurability(Durability.PERSIST_TO_MAJORITY)


def keys_of(count):
    return [f"key-{n:04}" for n in range(count)]


def store(collection, count, text):
    documents = {key: {"text": text} for key in keys_of(count)}
    stored = collection.upsert_multi(documents, UpsertMultiOptions(durability=PERSISTED))
    assert stored.all_ok, stored.exceptions
    return MutationState(*stored.results.values())


def scanned(collection, state=None):
    options = ScanOptions(ids_only=True, **({"consistent_with": state} if state else {}))
    return sorted(item.id for item in collection.scan(RangeScan(), options))


def connect_for_flushes(server):
    cluster = connect(server)
    cluster.wait_until_ready(timedelta(seconds=60))
    cluster.buckets().update_bucket(BucketSettings(name=kedge_server.BUCKET, flush_enabled=True))
    collection = cluster.bucket(kedge_server.BUCKET).default_collection()
    return cluster, collection


def flush(cluster, collection):
    cluster.buckets().flush_bucket(kedge_server.BUCKET)
    deadline.until(lambda: not collection.exists("key-0000").exists, "the flush empties the bucket")


def test_scans_see_exactly_what_was_stored_after_a_flush(own_server):
    cluster, collection = connect_for_flushes(own_server)
    store(collection, 1_000, "before")
    flush(cluster, collection)
    assert scanned(collection) == []
    state = store(collection, 1_000, "after")
    for _ in range(5):
        assert scanned(collection, state) == keys_of(1_000)

    flush(cluster, collection)
    state = store(collection, 300, "last")
    assert scanned(collection, state) == keys_of(300)

    assert own_server.terminate() == 0
    own_server.start()
    wait_for_reconnect(collection, "key-0000")
    assert scanned(collection) == keys_of(300)

    own_server.kill()
    own_server.start()
    wait_for_reconnect(collection, "key-0000")
    assert scanned(collection) == keys_of(300)
    read = collection.get_multi(keys_of(300))
    assert read.all_ok, read.exceptions
    assert all(result.content_as[dict] == {"text": "last"} for result in read.results.values())
    assert not collection.exists("key-0300").exists
    cluster.close()


def test_a_flush_survives_a_kill(own_server):
    cluster, collection = connect_for_flushes(own_server)
    store(collection, 500, "before")
    flush(cluster, collection)
    own_server.kill()
    own_server.start()
    deadline.until(lambda: not collection.exists("key-0000").exists, "the flush is kept")
    assert scanned(collection) == []
    cluster.close()
