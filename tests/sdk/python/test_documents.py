import os
from datetime import timedelta

import couchbase.subdocument as SD
import pytest
from couchbase.exceptions import (
    CasMismatchException,
    CouchbaseException,
    DocumentExistsException,
    DocumentNotFoundException,
)
from couchbase.options import (
    DecrementOptions,
    DeltaValue,
    GetOptions,
    IncrementOptions,
    InsertOptions,
    RemoveOptions,
    ReplaceOptions,
    SignedInt64,
    UpsertOptions,
)
from couchbase.transcoder import RawBinaryTranscoder, RawStringTranscoder

import deadline

VALUE_TOO_LARGE = 104
JSON_VALUES = [{"a": [1, 2.5, None, True, "ä\u0000"]}, [], "text", 0, -1.5, True, None]


def is_gone(collection, key):
    return not collection.exists(key).exists


@pytest.mark.parametrize("value", JSON_VALUES, ids=repr)
def test_json_values(collection, key, value):
    collection.upsert(key, value)
    assert collection.get(key).value == value


@pytest.mark.parametrize("value", [b"", b"\x00\xff" * 1000, os.urandom(100_000)], ids=len)
def test_binary_values(collection, key, value):
    transcoder = RawBinaryTranscoder()
    collection.upsert(key, value, UpsertOptions(transcoder=transcoder))
    assert collection.get(key, GetOptions(transcoder=transcoder)).content_as[bytes] == value


def test_insert_replace_remove(collection, key):
    with pytest.raises(DocumentNotFoundException):
        collection.get(key)
    with pytest.raises(DocumentNotFoundException):
        collection.replace(key, {"n": 0})
    with pytest.raises(DocumentNotFoundException):
        collection.remove(key)
    collection.insert(key, {"n": 1})
    with pytest.raises(DocumentExistsException):
        collection.insert(key, {"n": 2})
    collection.replace(key, {"n": 3})
    assert collection.get(key).content_as[dict] == {"n": 3}
    collection.remove(key)
    with pytest.raises(DocumentNotFoundException):
        collection.get(key)


def test_exists(collection, key):
    assert not collection.exists(key).exists
    stored = collection.upsert(key, 1)
    found = collection.exists(key)
    assert found.exists and found.cas == stored.cas
    collection.remove(key)
    assert not collection.exists(key).exists


def test_cas_conflicts(collection, key):
    first = collection.upsert(key, 1).cas
    second = collection.replace(key, 2, ReplaceOptions(cas=first)).cas
    assert second > first
    with pytest.raises(CasMismatchException):
        collection.replace(key, 3, ReplaceOptions(cas=first))
    with pytest.raises(CasMismatchException):
        collection.remove(key, RemoveOptions(cas=first))
    assert collection.get(key).content_as[int] == 2
    collection.remove(key, RemoveOptions(cas=second))
    assert is_gone(collection, key)


def test_mutation_tokens_grow(collection, key):
    first = collection.upsert(key, 1).mutation_token()
    second = collection.upsert(key, 2).mutation_token()
    assert first.partition_id == second.partition_id
    assert first.partition_uuid == second.partition_uuid != 0
    assert second.sequence_number > first.sequence_number
    assert second.bucket_name == "default"


def test_expiry(collection, key):
    collection.upsert(key, 1, UpsertOptions(expiry=timedelta(seconds=1)))
    deadline.until(lambda: is_gone(collection, key), "the document expires")


def test_touch(collection, key):
    collection.upsert(key, 1)
    collection.touch(key, timedelta(seconds=1))
    deadline.until(lambda: is_gone(collection, key), "the touched document expires")
    with pytest.raises(DocumentNotFoundException):
        collection.touch(key, timedelta(seconds=1))


def test_get_and_touch(collection, key):
    collection.upsert(key, "value", UpsertOptions(expiry=timedelta(minutes=1)))
    assert collection.get_and_touch(key, timedelta(hours=1)).content_as[str] == "value"
    assert collection.get_and_touch(key, timedelta(seconds=1)).content_as[str] == "value"
    deadline.until(lambda: is_gone(collection, key), "the touched document expires")
    with pytest.raises(DocumentNotFoundException):
        collection.get_and_touch(key, timedelta(seconds=1))


def test_preserve_expiry(collection, key):
    with_expiry = GetOptions(with_expiry=True)
    collection.upsert(key, 1, UpsertOptions(expiry=timedelta(hours=1)))
    expires = collection.get(key, with_expiry).expiry_time
    assert expires is not None
    collection.upsert(key, 2, UpsertOptions(preserve_expiry=True))
    assert collection.get(key).content_as[int] == 2
    assert collection.get(key, with_expiry).expiry_time == expires


def test_write_without_preserve_expiry_drops_it(collection, key):
    collection.upsert(key, 1, UpsertOptions(expiry=timedelta(hours=1)))
    collection.upsert(key, 2)
    found = collection.get(key, GetOptions(with_expiry=True))
    assert found.content_as[int] == 2
    assert found.expiry_time is None


def test_counters(collection, key):
    binary = collection.binary()
    with pytest.raises(DocumentNotFoundException):
        binary.increment(key, IncrementOptions(initial=SignedInt64(-1)))
    assert binary.increment(key, IncrementOptions(initial=SignedInt64(10))).content == 10
    assert binary.increment(key, IncrementOptions(delta=DeltaValue(5))).content == 15
    assert binary.decrement(key, DecrementOptions(delta=DeltaValue(3))).content == 12
    assert binary.decrement(key, DecrementOptions(delta=DeltaValue(100))).content == 0
    assert collection.get(key).content_as[int] == 0


def test_counter_on_text_fails(collection, key):
    collection.upsert(key, "text")
    with pytest.raises(CouchbaseException):
        collection.binary().increment(key)


def test_append_and_prepend(collection, key):
    transcoder = RawStringTranscoder()
    binary = collection.binary()
    with pytest.raises(CouchbaseException):
        binary.append(key, "x")
    collection.upsert(key, "middle", UpsertOptions(transcoder=transcoder))
    binary.append(key, "-end")
    binary.prepend(key, "start-")
    read = collection.get(key, GetOptions(transcoder=transcoder))
    assert read.content_as[str] == "start-middle-end"


def test_what_the_client_compresses(collection, key):
    text = "compressible " * 1000
    transcoder = RawStringTranscoder()
    collection.upsert(key, text, UpsertOptions(transcoder=transcoder))
    stored = collection.lookup_in(key, [SD.get("$document.datatype", xattr=True)])
    assert stored.content_as[list](0) == ["snappy"]
    # The server inflates it before it appends.
    collection.binary().append(key, text)
    assert collection.get(key, GetOptions(transcoder=transcoder)).content_as[str] == text + text


def test_large_values(collection, key):
    transcoder = RawBinaryTranscoder()
    largest = os.urandom(1 << 20) * 20
    collection.upsert(key, largest, UpsertOptions(transcoder=transcoder))
    assert collection.get(key, GetOptions(transcoder=transcoder)).content_as[bytes] == largest
    with pytest.raises(CouchbaseException) as caught:
        collection.upsert(key, largest + b"x", UpsertOptions(transcoder=transcoder))
    assert caught.value.error_code == VALUE_TOO_LARGE
    assert collection.get(key, GetOptions(transcoder=transcoder)).content_as[bytes] == largest
    collection.remove(key)


def test_ten_thousand_documents(collection, key):
    ten_thousand(collection, key)


def ten_thousand(collection, key):
    """Stores, reads and removes that many documents in bulk."""
    documents = {f"{key}-{n}": {"n": n} for n in range(10_000)}
    stored = collection.upsert_multi(documents)
    assert stored.all_ok, stored.exceptions
    read = collection.get_multi(list(documents))
    assert read.all_ok, read.exceptions
    assert {name: result.content_as[dict] for name, result in read.results.items()} == documents
    removed = collection.remove_multi(list(documents))
    assert removed.all_ok, removed.exceptions
    assert is_gone(collection, f"{key}-0")


def test_insert_with_expiry(collection, key):
    collection.insert(key, 1, InsertOptions(expiry=timedelta(seconds=1)))
    deadline.until(lambda: is_gone(collection, key), "the inserted document expires")
    collection.insert(key, 2)
    assert collection.get(key).content_as[int] == 2
