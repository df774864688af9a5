from datetime import timedelta

import couchbase.subdocument as SD
import pytest
from couchbase.durability import DurabilityLevel, ServerDurability
from couchbase.exceptions import (
    CasMismatchException,
    DocumentExistsException,
    DocumentNotFoundException,
    PathExistsException,
    PathMismatchException,
    PathNotFoundException,
)
from couchbase.options import GetOptions, LookupInOptions, MutateInOptions, ReplaceOptions
from couchbase.subdocument import StoreSemantics
from couchbase.transcoder import RawJSONTranscoder

DOCUMENT = {"name": "a", "tags": ["x", "y"], "address": {"city": "b"}, "visits": 5}


@pytest.fixture
def stored(collection, key):
    collection.upsert(key, DOCUMENT)
    return key


def test_lookup_in(collection, stored):
    found = collection.lookup_in(
        stored,
        [SD.get("address.city"), SD.get("tags[-1]"), SD.exists("nothing"), SD.count("tags"), SD.get_full()],
    )
    assert found.content_as[str](0) == "b"
    assert found.content_as[str](1) == "y"
    assert not found.exists(2)
    assert found.content_as[int](3) == 2
    assert found.content_as[dict](4) == DOCUMENT
    assert found.cas == collection.get(stored).cas
    missing = collection.lookup_in(stored, [SD.get("nothing"), SD.get("name[0]")])
    with pytest.raises(PathNotFoundException):
        missing.content_as[str](0)
    with pytest.raises(PathMismatchException):
        missing.content_as[str](1)


def test_missing_document(collection, key):
    with pytest.raises(DocumentNotFoundException):
        collection.lookup_in(key, [SD.get("a")])
    with pytest.raises(DocumentNotFoundException):
        collection.mutate_in(key, [SD.upsert("a", 1)])


def test_mutate_in(collection, stored):
    changed = collection.mutate_in(
        stored,
        [
            SD.upsert("name", "c"),
            SD.insert("a.b.c", {"d": 1}, create_parents=True),
            SD.replace("address.city", "e"),
            SD.array_append("tags", "z"),
            SD.array_prepend("tags", "w"),
            SD.array_insert("tags[1]", "v"),
            SD.array_addunique("tags", "u"),
            SD.increment("visits", 3),
        ],
    )
    assert changed.content_as[int](7) == 8
    after = collection.get(stored)
    assert after.cas == changed.cas
    assert after.content_as[dict] == {
        "name": "c",
        "tags": ["w", "v", "x", "y", "z", "u"],
        "address": {"city": "e"},
        "visits": 8,
        "a": {"b": {"c": {"d": 1}}},
    }
    collection.mutate_in(stored, [SD.remove("address"), SD.remove("tags[0]"), SD.decrement("visits", 10)])
    assert collection.get(stored).content_as[dict]["visits"] == -2


def test_nothing_changes_when_one_path_fails(collection, stored):
    with pytest.raises(PathExistsException):
        collection.mutate_in(stored, [SD.upsert("name", "c"), SD.insert("visits", 1)])
    with pytest.raises(PathNotFoundException):
        collection.mutate_in(stored, [SD.upsert("name", "c"), SD.replace("nothing", 1)])
    assert collection.get(stored).content_as[dict] == DOCUMENT


def test_semantics_and_cas(collection, key):
    insert = MutateInOptions(store_semantics=StoreSemantics.INSERT)
    collection.mutate_in(key, [SD.upsert("a", 1)], insert)
    with pytest.raises(DocumentExistsException):
        collection.mutate_in(key, [SD.upsert("a", 2)], insert)
    upsert = MutateInOptions(store_semantics=StoreSemantics.UPSERT)
    first = collection.mutate_in(key, [SD.upsert("a", 3)], upsert)
    collection.mutate_in(key, [SD.upsert("a", 4)], MutateInOptions(cas=first.cas))
    with pytest.raises(CasMismatchException):
        collection.mutate_in(key, [SD.upsert("a", 5)], MutateInOptions(cas=first.cas))
    assert collection.get(key).content_as[dict] == {"a": 4}


def test_durable_mutation(collection, stored):
    durable = MutateInOptions(durability=ServerDurability(DurabilityLevel.PERSIST_TO_MAJORITY))
    changed = collection.mutate_in(stored, [SD.increment("visits", 1), SD.upsert("name", "d")], durable)
    assert changed.content_as[int](0) == 6
    assert collection.get(stored).content_as[dict]["name"] == "d"


def test_expiry(collection, stored):
    with_expiry = GetOptions(with_expiry=True)
    collection.mutate_in(stored, [SD.upsert("name", "c")], MutateInOptions(expiry=timedelta(hours=1)))
    expires = collection.get(stored, with_expiry).expiry_time
    assert expires is not None
    collection.mutate_in(stored, [SD.upsert("name", "d")], MutateInOptions(preserve_expiry=True))
    assert collection.get(stored, with_expiry).expiry_time == expires
    collection.mutate_in(stored, [SD.upsert("name", "e")])
    assert collection.get(stored, with_expiry).expiry_time is None


def test_projection(collection, stored):
    found = collection.get(stored, GetOptions(project=["name", "address.city"]))
    assert found.content_as[dict] == {"name": "a", "address": {"city": "b"}}


def test_extended_attributes(collection, stored):
    collection.mutate_in(
        stored,
        [
            SD.upsert("meta.owner", "me", xattr=True, create_parents=True),
            SD.upsert("_sys", {"n": 1}, xattr=True),
            SD.upsert("name", "c"),
        ],
    )
    paths = [SD.get("meta.owner", xattr=True), SD.get("_sys", xattr=True), SD.get("name")]
    found = collection.lookup_in(stored, paths)
    assert [found.content_as[str](0), found.content_as[dict](1), found.content_as[str](2)] == ["me", {"n": 1}, "c"]
    assert "meta" not in collection.get(stored).content_as[dict]
    # What replaces the body does not touch them.
    collection.replace(stored, {"other": 1}, ReplaceOptions())
    found = collection.lookup_in(stored, paths[:2])
    assert found.content_as[str](0) == "me"
    assert collection.get(stored).content_as[dict] == {"other": 1}


def test_virtual_attributes(collection, stored):
    found = collection.lookup_in(
        stored, [SD.get("$document", xattr=True), SD.get("$document.exptime", xattr=True), SD.get("$vbucket.HLC", xattr=True)]
    )
    document = found.content_as[dict](0)
    assert int(document["CAS"], 16) == found.cas
    assert document["value_bytes"] == len(collection.get(stored, GetOptions(transcoder=RawJSONTranscoder())).content_as[bytes])
    assert document["datatype"] == ["json"]
    assert found.content_as[int](1) == 0
    assert int(found.content_as[dict](2)["now"]) > 1_700_000_000


def test_macros(collection, stored):
    changed = collection.mutate_in(
        stored,
        [
            SD.upsert("stamp.cas", SD.MutationMacro.cas(), xattr=True, create_parents=True),
            SD.upsert("stamp.seqno", SD.MutationMacro.seq_no(), xattr=True),
            SD.upsert("stamp.crc", SD.MutationMacro.value_crc32c(), xattr=True),
        ],
    )
    found = collection.lookup_in(stored, [SD.get("stamp", xattr=True), SD.get("$document", xattr=True)])
    stamp, document = found.content_as[dict](0), found.content_as[dict](1)
    assert int.from_bytes(bytes.fromhex(stamp["cas"][2:]), "little") == changed.cas
    assert stamp["seqno"] == document["seqno"]
    assert stamp["crc"] == document["value_crc32c"]


def test_deleted_documents(collection, key):
    staged = MutateInOptions(
        store_semantics=StoreSemantics.INSERT, access_deleted=True, create_as_deleted=True
    )
    collection.mutate_in(key, [SD.upsert("txn.id", 1, xattr=True, create_parents=True)], staged)
    with pytest.raises(DocumentNotFoundException):
        collection.get(key)
    with pytest.raises(DocumentNotFoundException):
        collection.lookup_in(key, [SD.get("txn.id", xattr=True)])
    deleted = LookupInOptions(access_deleted=True)
    assert collection.lookup_in(key, [SD.get("txn.id", xattr=True)], deleted).content_as[int](0) == 1


def test_system_attributes_outlive_their_document(collection, stored):
    collection.mutate_in(stored, [SD.upsert("_sys", 1, xattr=True), SD.upsert("user", 2, xattr=True)])
    collection.remove(stored)
    found = collection.lookup_in(
        stored, [SD.get("_sys", xattr=True), SD.get("user", xattr=True)], LookupInOptions(access_deleted=True)
    )
    assert found.content_as[int](0) == 1
    with pytest.raises(PathNotFoundException):
        found.content_as[int](1)
