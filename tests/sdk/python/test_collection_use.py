"""What is done with documents of named collections, on one node and on two."""

import time
import uuid
from datetime import timedelta

import couchbase.subdocument as SD
import pytest
from couchbase.durability import ServerDurability
from couchbase.exceptions import DocumentUnretrievableException
from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.management.collections import CreateCollectionSettings
from couchbase.options import GetOptions, LookupInOptions, ScanOptions, UpsertOptions

import deadline
import kedge_cluster
import kedge_server
from conftest import connect, open_bucket
from test_cluster import has_all, paths_on_replicas
from test_collections import is_there
from test_documents import ten_thousand
from test_durability import LEVELS

LONGEST_S = 600


@pytest.fixture(scope="module", params=[1, 2], ids=lambda count: f"{count} nodes")
def own(request):
    """How many nodes there are, each with replicas of the others; their bucket."""
    count = request.param
    started = kedge_server.Server().start() if count == 1 else kedge_cluster.Cluster(count, count - 1)
    try:
        cluster = connect(started)
        yield count, open_bucket(cluster, count)
        cluster.close()
    finally:
        started.remove()


@pytest.fixture
def scope(own):
    """A scope with the collections `a` and `b`."""
    manager = own[1].collections()
    name = f"s-{uuid.uuid4().hex[:12]}"
    manager.create_scope(name)
    for collection in ("a", "b"):
        manager.create_collection(name, collection)
    yield own[1].scope(name)
    manager.drop_scope(name)


@pytest.fixture
def a(scope):
    return scope.collection("a")


@pytest.fixture
def b(scope):
    return scope.collection("b")


def test_the_time_to_live_is_the_collections(own, scope, key):
    longest = CreateCollectionSettings(max_expiry=timedelta(seconds=LONGEST_S))
    own[1].collections().create_collection(scope.name, "ttl", settings=longest)
    documents = scope.collection("ttl")
    for options in (UpsertOptions(), UpsertOptions(expiry=timedelta(days=20))):
        before = int(time.time())
        documents.upsert(key, 1, options)
        after = int(time.time()) + 1
        expiry = documents.get(key, GetOptions(with_expiry=True)).expiry_time.timestamp()
        assert before + LONGEST_S <= expiry <= after + LONGEST_S
    documents.upsert(key, 1, UpsertOptions(expiry=timedelta(seconds=60)))
    assert documents.get(key, GetOptions(with_expiry=True)).expiry_time.timestamp() <= time.time() + 61


def test_scans(a, b, key):
    keys = [f"{key}-{n:02}" for n in range(20)]
    for n, each in enumerate(keys):
        a.upsert(each, n)
    b.upsert(f"{key}-b", 1)
    found = {item.id: item.content_as[int] for item in a.scan(PrefixScan(key))}
    assert found == {each: n for n, each in enumerate(keys)}

    def ids(kind):
        return sorted(item.id for item in a.scan(kind, ScanOptions(ids_only=True)))

    assert ids(RangeScan()) == keys
    assert ids(RangeScan(ScanTerm(keys[5]), ScanTerm(keys[9], exclusive=True))) == keys[5:9]
    assert ids(SamplingScan(100, 7)) == keys
    assert len(set(ids(SamplingScan(10, 7)))) == 10
    for each in keys:
        a.remove(each)
    assert ids(RangeScan()) == []


def test_paths(a, b, key):
    for value, where in enumerate((a, b)):
        where.upsert(key, {"n": value})
    a.mutate_in(
        key,
        [
            SD.upsert("meta.owner", "me", xattr=True, create_parents=True),
            SD.upsert("_sys", 2, xattr=True),
            SD.increment("n", 10),
        ],
    )
    paths = [SD.get("meta.owner", xattr=True), SD.get("_sys", xattr=True), SD.get("n")]
    found = a.lookup_in(key, paths)
    assert [found.content_as[str](0), found.content_as[int](1), found.content_as[int](2)] == ["me", 2, 10]
    other = b.lookup_in(key, paths)
    assert [other.exists(n) for n in range(3)] == [False, False, True]
    assert other.content_as[int](2) == 1
    # An attribute of the system outlives the document, in its collection only.
    a.remove(key)
    tombstone = a.lookup_in(key, paths[:2], LookupInOptions(access_deleted=True))
    assert not tombstone.exists(0) and tombstone.content_as[int](1) == 2
    assert b.get(key).content_as[dict] == {"n": 1}


def test_ten_thousand_documents(a, key):
    ten_thousand(a, key)


def test_durable_writes_and_reads_from_replicas(own, a, b, key):
    count, _ = own
    for level in LEVELS:
        for n in range(20):
            name = f"{key}-{level.name}-{n}"
            b.upsert(name, -1)
            a.upsert(name, n, UpsertOptions(durability=ServerDurability(level)))
            deadline.until(lambda: has_all(a, name, n, count), f"{name} is everywhere")
            assert a.get_any_replica(name).content_as[int] == n
    paths_on_replicas(a, f"{key}-paths", count)
    b.upsert(key, 1)
    with pytest.raises(DocumentUnretrievableException):
        a.get_any_replica(key)


def test_made_anew_it_is_empty_on_all_nodes(own, scope, a, key):
    keys = [f"{key}-{n}" for n in range(20)]
    for each in keys:
        a.upsert(each, 1)
    manager = own[1].collections()
    manager.drop_collection(scope.name, "a")
    manager.create_collection(scope.name, "a")
    for each in keys:
        deadline.until(lambda: is_there(a, each) is False, "the new collection is used, and empty")
