"""A client is killed after it has staged changes, and before it commits: others do not see them, and get past them."""

import pathlib
import subprocess
import sys
from datetime import timedelta

import couchbase.subdocument as SD
import pytest
from couchbase.options import LookupInOptions, TransactionConfig

import deadline
import kedge_cluster
import kedge_server
from conftest import connect, open_bucket
from test_transactions import nothing_is_staged, run_again

@pytest.fixture(scope="module", params=[1, 2], ids=lambda count: f"{count} nodes")
def nodes(request):
    started = kedge_server.Server().start() if request.param == 1 else kedge_cluster.Cluster(2, 1)
    try:
        yield started
    finally:
        started.remove()


@pytest.fixture
def cluster(nodes):
    """A connection that looks every second for what others have lost."""
    config = TransactionConfig(cleanup_lost_attempts=True, cleanup_window=timedelta(seconds=1))
    connected = connect(nodes, transactions=config)
    open_bucket(connected, nodes.connection_string.count(",") + 1)
    yield connected
    connected.close()


@pytest.fixture
def documents(cluster, key):
    collection = cluster.bucket(kedge_server.BUCKET).default_collection()
    # From its first transaction in a bucket on the client looks there.
    run_again(cluster, lambda ctx: ctx.insert(collection, key, {}))
    return collection


def killed_while_staged(nodes, keys):
    """Another process stages an insert, a replacement and a removal, and is killed before it commits."""
    script = pathlib.Path(__file__).with_name("staging_client.py")
    command = [sys.executable, str(script), nodes.connection_string, *keys]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "staged\n"
    finally:
        child.kill()
        child.wait()


def keys_of(documents, key):
    keys = inserted, replaced, removed = [f"{key}-{which}" for which in "ird"]
    documents.upsert(replaced, {"n": 1})
    documents.upsert(removed, {"n": 2})
    return keys


def staged(documents, name):
    """What a transaction has noted in the document, also where it is to be inserted."""
    found = documents.lookup_in(name, [SD.get("txn", xattr=True)], LookupInOptions(access_deleted=True))
    return found.content_as[dict](0)


def others_see_nothing(documents, keys):
    inserted, replaced, removed = keys
    assert not documents.exists(inserted).exists
    assert documents.get(replaced).content_as[dict] == {"n": 1}
    assert documents.get(removed).content_as[dict] == {"n": 2}


def test_what_a_lost_client_staged_is_in_nobodys_way(nodes, cluster, documents, key):
    inserted, replaced, removed = keys = keys_of(documents, key)
    killed_while_staged(nodes, keys)
    others_see_nothing(documents, keys)
    attempts = [(staged(documents, name)["atr"]["id"], staged(documents, name)["id"]["atmpt"]) for name in keys]
    assert len(set(attempts)) == 1
    record, attempt = attempts[0]

    def is_given_up():
        return not documents.lookup_in(record, [SD.exists(f"attempts.{attempt}", xattr=True)]).exists(0)

    deadline.until(is_given_up, "the attempt has expired, and its record is removed")
    others_see_nothing(documents, keys)

    def work(ctx):
        ctx.replace(ctx.get(documents, replaced), {"n": 100})
        ctx.insert(documents, inserted, {"n": 300})

    run_again(cluster, work)
    documents.upsert(removed, {"n": 200})
    for n, name in ((100, replaced), (200, removed), (300, inserted)):
        assert documents.get(name).content_as[dict] == {"n": n}
    nothing_is_staged(documents, inserted)
    nothing_is_staged(documents, replaced)


def test_another_transaction_waits_for_what_a_lost_client_staged(nodes, cluster, documents, key):
    inserted, replaced, removed = keys = keys_of(documents, key)
    killed_while_staged(nodes, keys)
    attempts = []

    def work(ctx):
        attempts.append(ctx.get(documents, replaced).content_as[dict])
        ctx.replace(ctx.get(documents, replaced), {"n": 100})
        ctx.replace(ctx.get(documents, removed), {"n": 200})
        ctx.insert(documents, inserted, {"n": 300})

    # It conflicts with what is staged until that has expired.
    run_again(cluster, work)
    assert all(found == {"n": 1} for found in attempts)
    for n, name in ((100, replaced), (200, removed), (300, inserted)):
        assert documents.get(name).content_as[dict] == {"n": n}
        nothing_is_staged(documents, name)
