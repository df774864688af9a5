import pytest
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import CasMismatchException, DocumentExistsException, DocumentNotFoundException
from couchbase.options import (
    IncrementOptions,
    InsertOptions,
    RemoveOptions,
    ReplaceOptions,
    SignedInt64,
    UpsertMultiOptions,
    UpsertOptions,
)

LEVELS = [
    Durability.MAJORITY,
    Durability.MAJORITY_AND_PERSIST_TO_ACTIVE,
    Durability.PERSIST_TO_MAJORITY,
]


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_every_write_at_every_level(collection, key, level):
    durability = ServerDurability(level)
    collection.insert(key, 1, InsertOptions(durability=durability))
    with pytest.raises(DocumentExistsException):
        collection.insert(key, 2, InsertOptions(durability=durability))
    stored = collection.upsert(key, 3, UpsertOptions(durability=durability))
    assert stored.mutation_token().sequence_number > 0
    replaced = collection.replace(key, 4, ReplaceOptions(durability=durability, cas=stored.cas))
    with pytest.raises(CasMismatchException):
        collection.replace(key, 5, ReplaceOptions(durability=durability, cas=stored.cas))
    assert collection.get(key).content_as[int] == 4
    assert collection.get(key).cas == replaced.cas
    collection.remove(key, RemoveOptions(durability=durability))
    with pytest.raises(DocumentNotFoundException):
        collection.get(key)


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_counters_at_every_level(collection, key, level):
    durability = ServerDurability(level)
    options = IncrementOptions(initial=SignedInt64(7), durability=durability)
    assert collection.binary().increment(key, options).content == 7
    assert collection.binary().increment(key, options).content == 8
    assert collection.get(key).content_as[int] == 8


def test_durable_writes_in_bulk(collection, key):
    documents = {f"{key}-{n}": n for n in range(1_000)}
    durability = ServerDurability(Durability.PERSIST_TO_MAJORITY)
    stored = collection.upsert_multi(documents, UpsertMultiOptions(durability=durability))
    assert stored.all_ok, stored.exceptions
