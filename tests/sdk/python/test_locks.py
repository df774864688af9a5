from datetime import timedelta

import pytest
from couchbase.exceptions import (
    CouchbaseException,
    DocumentLockedException,
    DocumentNotFoundException,
    DocumentNotLockedException,
)
from couchbase.options import GetAndLockOptions, ReplaceOptions, UpsertOptions

import deadline

SHORT = timedelta(seconds=1)
LONG_LOCK = timedelta(seconds=30)


def want_locked(attempt):
    """The SDK tries again until the time is up, and says then what it met: on a busy machine maybe nothing yet."""

    def is_locked():
        with pytest.raises(CouchbaseException) as caught:
            attempt()
        return caught.errisinstance(DocumentLockedException)

    deadline.until(is_locked, "the SDK meets the lock")


def test_lock_and_unlock(collection, key):
    collection.upsert(key, 1)
    locked = collection.get_and_lock(key, LONG_LOCK)
    assert locked.content_as[int] == 1
    collection.unlock(key, locked.cas)
    collection.upsert(key, 2)
    assert collection.get(key).content_as[int] == 2


def test_locked_document_can_be_read_but_not_written(collection, key):
    collection.upsert(key, 1)
    locked = collection.get_and_lock(key, LONG_LOCK)
    assert collection.get(key).content_as[int] == 1
    want_locked(lambda: collection.upsert(key, 2, UpsertOptions(timeout=SHORT)))
    want_locked(lambda: collection.get_and_lock(key, LONG_LOCK, GetAndLockOptions(timeout=SHORT)))
    assert collection.get(key).content_as[int] == 1
    collection.replace(key, 3, ReplaceOptions(cas=locked.cas))
    collection.upsert(key, 4)
    assert collection.get(key).content_as[int] == 4


def test_unlock_needs_the_cas_of_the_lock(collection, key):
    unlocked = collection.upsert(key, 1)
    with pytest.raises(DocumentNotLockedException):
        collection.unlock(key, unlocked.cas)
    locked = collection.get_and_lock(key, LONG_LOCK)
    with pytest.raises(CouchbaseException):
        collection.unlock(key, locked.cas + 1)
    collection.unlock(key, locked.cas)


def test_lock_of_a_missing_document(collection, key):
    with pytest.raises(DocumentNotFoundException):
        collection.get_and_lock(key, LONG_LOCK)


def test_lock_ends_by_itself(collection, key):
    collection.upsert(key, 1)
    collection.get_and_lock(key, timedelta(seconds=1))

    def can_write():
        try:
            collection.upsert(key, 2, UpsertOptions(timeout=timedelta(milliseconds=200)))
            return True
        except CouchbaseException:
            return False

    deadline.until(can_write, "the lock ends")
    assert collection.get(key).content_as[int] == 2
