from datetime import timedelta

import couchbase.subdocument as SD
import pytest
from couchbase.durability import ServerDurability
from couchbase.exceptions import CouchbaseException, DocumentUnretrievableException
from couchbase.kv_range_scan import PrefixScan
from couchbase.options import GetOptions, MutateInOptions, ScanOptions, UpsertMultiOptions, UpsertOptions

import deadline
import kedge_cluster
from conftest import connect, open_bucket
from test_durability import LEVELS

COUNT = 200


@pytest.fixture(params=[2, 3], ids=lambda count: f"{count} nodes")
def nodes(request):
    """A cluster whose other nodes are all replicas; its collection."""
    started = kedge_cluster.Cluster(request.param, request.param - 1)
    try:
        cluster = connect(started)
        yield started, open_bucket(cluster, request.param).default_collection()
        cluster.close()
    finally:
        started.remove()


def test_durable_writes_and_replica_reads(nodes, key):
    started, collection = nodes
    for level in LEVELS:
        documents = {f"{key}-{level.name}-{n}": n for n in range(COUNT)}
        options = UpsertMultiOptions(durability=ServerDurability(level))
        assert collection.upsert_multi(documents, options).all_ok
        for name in list(documents)[:20]:
            deadline.until(lambda: has_all(collection, name, documents[name], len(started.nodes)), f"{name} is everywhere")
            assert collection.get_any_replica(name).content_as[int] == documents[name]
    with pytest.raises(DocumentUnretrievableException):
        collection.get_any_replica(f"{key}-nothing")
    paths_on_replicas(collection, f"{key}-paths", len(started.nodes))
    # Each node scans its vBuckets.
    wanted = [f"{key}-{level.name}-{n}" for level in LEVELS for n in range(COUNT)]
    found = collection.scan(PrefixScan(f"{key}-"), ScanOptions(ids_only=True))
    assert sorted(item.id for item in found) == sorted([*wanted, f"{key}-paths"])


def paths_on_replicas(collection, name, copies):
    collection.upsert(name, {"n": 1})
    durable = MutateInOptions(durability=ServerDurability(LEVELS[0]))
    collection.mutate_in(name, [SD.upsert("_sys.n", 2, xattr=True, create_parents=True), SD.increment("n", 1)], durable)
    paths = [SD.get("_sys.n", xattr=True), SD.get("n")]

    def are_everywhere():
        found = list(collection.lookup_in_all_replicas(name, paths))
        assert sum(not each.is_replica for each in found) == 1
        return len(found) == copies and all(is_changed(each) for each in found)

    def is_changed(found):
        return found.exists(0) and [found.content_as[int](n) for n in (0, 1)] == [2, 2]

    deadline.until(are_everywhere, "the paths are on all replicas")
    assert is_changed(collection.lookup_in_any_replica(name, paths))


def has_all(collection, name, value, copies):
    """Whether the active and all replicas have it: a replica hears of the commit after the client does."""
    found = list(collection.get_all_replicas(name))
    assert sum(not each.is_replica for each in found) == 1
    return len(found) == copies and all(each.content_as[int] == value for each in found)


@pytest.mark.parametrize("nodes", [3], indirect=True, ids=["3 nodes"])
def test_the_client_goes_on_through_a_failover(nodes, key):
    started, collection = nodes
    documents = {f"{key}-{n}": n for n in range(COUNT)}
    durability = ServerDurability(LEVELS[0])
    assert collection.upsert_multi(documents, UpsertMultiOptions(durability=durability)).all_ok

    started.kill(2)
    started.fail_over(2)

    def reads(name):
        try:
            return collection.get(name, GetOptions(timeout=timedelta(seconds=1))).content_as[int] == documents[name]
        except CouchbaseException:
            return False

    for name in documents:
        deadline.until(lambda: reads(name), f"{name} is found at another node")
    for level in LEVELS:
        options = UpsertOptions(durability=ServerDurability(level))
        for name in list(documents)[:50]:
            collection.upsert(name, level.value, options)
            assert collection.get(name).content_as[int] == level.value
