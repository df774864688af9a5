from datetime import timedelta

import pytest
from couchbase.durability import Durability, ServerDurability
from couchbase.exceptions import CouchbaseException, DocumentNotFoundException
from couchbase.options import GetOptions, RemoveOptions, UpsertMultiOptions, UpsertOptions

import deadline
import kedge_server
from conftest import connect

LEVELS = [Durability.MAJORITY_AND_PERSIST_TO_ACTIVE, Durability.PERSIST_TO_MAJORITY]


def wait_for_reconnect(collection, key):
    def can_read():
        try:
            collection.get(key, GetOptions(timeout=timedelta(seconds=1)))
            return True
        except CouchbaseException:
            return False

    deadline.until(can_read, "the client reconnects")


def test_orderly_restart_keeps_everything(own_server):
    cluster = connect(own_server)
    collection = cluster.bucket(kedge_server.BUCKET).default_collection()
    documents = {f"key-{n}": {"n": n} for n in range(1_000)}
    assert collection.upsert_multi(documents).all_ok
    cas = collection.get("key-0").cas

    assert own_server.terminate() == 0
    own_server.start()

    wait_for_reconnect(collection, "key-0")
    read = collection.get_multi(list(documents))
    assert read.all_ok, read.exceptions
    assert {name: result.content_as[dict] for name, result in read.results.items()} == documents
    assert collection.get("key-0").cas == cas
    assert collection.upsert("key-0", 1).cas > cas
    cluster.close()


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
def test_acknowledged_durable_writes_survive_a_kill(own_server, level):
    cluster = connect(own_server)
    collection = cluster.bucket(kedge_server.BUCKET).default_collection()
    durability = ServerDurability(level)
    documents = {f"key-{n}": {"n": n} for n in range(500)}
    assert collection.upsert_multi(documents, UpsertMultiOptions(durability=durability)).all_ok
    collection.remove("key-0", RemoveOptions(durability=durability))
    del documents["key-0"]

    own_server.kill()
    own_server.start()

    wait_for_reconnect(collection, "key-1")
    read = collection.get_multi(list(documents))
    assert read.all_ok, read.exceptions
    assert {name: result.content_as[dict] for name, result in read.results.items()} == documents
    with pytest.raises(DocumentNotFoundException):
        collection.get("key-0")
    collection.upsert("key-0", "again", UpsertOptions(durability=durability))
    cluster.close()
