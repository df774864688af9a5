"""Range scans, prefix scans and samples."""

import pytest
from couchbase.kv_range_scan import PrefixScan, RangeScan, SamplingScan, ScanTerm
from couchbase.mutation_state import MutationState
from couchbase.options import ScanOptions


@pytest.fixture
def keys(collection, request):
    names = [f"{request.node.name}-{n:03}" for n in range(100)]
    for n, name in enumerate(names):
        collection.upsert(name, {"n": n})
    return names


def scan(collection, kind, **options):
    return list(collection.scan(kind, ScanOptions(**options)))


def ids(found):
    return sorted(item.id for item in found)


def test_prefix(collection, keys):
    prefix = keys[0][:-3]
    found = scan(collection, PrefixScan(prefix))
    assert ids(found) == keys
    by_id = {item.id: item for item in found}
    for n, name in enumerate(keys):
        assert by_id[name].content_as[dict] == {"n": n}
        assert by_id[name].cas == collection.get(name).cas
    assert scan(collection, PrefixScan("no such prefix")) == []


def test_ids_only(collection, keys):
    found = scan(collection, PrefixScan(keys[0][:-3]), ids_only=True)
    assert ids(found) == keys


def test_all(collection, keys):
    found = ids(scan(collection, RangeScan()))
    assert found[found.index(keys[0]):][:100] == keys


def test_range_in_small_batches(collection, keys):
    kind = RangeScan(ScanTerm(keys[10]), ScanTerm(keys[19], exclusive=True))
    found = scan(collection, kind, batch_item_limit=1, concurrency=4)
    assert ids(found) == keys[10:19]


def test_what_was_written_before_is_seen(collection, keys):
    collection.remove(keys[3])
    result = collection.upsert(keys[4], {"n": 400})
    state = MutationState(result)
    found = scan(collection, PrefixScan(keys[0][:-3]), consistent_with=state)
    assert ids(found) == keys[:3] + keys[4:]


def test_sample(collection, keys):
    for ids_only in (False, True):
        found = scan(collection, SamplingScan(30, 7), ids_only=ids_only)
        assert len(set(ids(found))) == 30


def test_sample_without_a_seed(collection, keys):
    """The SDK draws the seed, of up to 64 bits. Seeds of 2^32 and more were refused once."""
    for _ in range(5):
        found = scan(collection, SamplingScan(30), ids_only=True)
        assert len(set(ids(found))) == 30
