import uuid
from datetime import timedelta

import pytest
from couchbase.exceptions import (
    CollectionAlreadyExistsException,
    CollectionNotFoundException,
    CouchbaseException,
    ScopeAlreadyExistsException,
    ScopeNotFoundException,
)
from couchbase.management.collections import CreateCollectionSettings, UpdateCollectionSettings
from couchbase.options import GetOptions

import deadline


@pytest.fixture
def manager(bucket):
    return bucket.collections()


@pytest.fixture
def scope(manager):
    name = f"s-{uuid.uuid4().hex[:12]}"
    manager.create_scope(name)
    yield name
    try:
        manager.drop_scope(name)
    except ScopeNotFoundException:
        pass


def names(manager, scope):
    """The collections of a scope with their settings; None without such a scope."""
    scopes = {each.name: each for each in manager.get_all_scopes()}
    return {each.name: each for each in scopes[scope].collections} if scope in scopes else None


def is_there(collection, key):
    try:
        return collection.exists(key).exists
    except CouchbaseException:
        # The client asks for the new id once it was told that the old one is unknown.
        return None


def test_create_and_drop(manager, scope):
    with pytest.raises(ScopeAlreadyExistsException):
        manager.create_scope(scope)
    assert names(manager, scope) == {}
    manager.create_collection(scope, "a")
    manager.create_collection(scope, "b", settings=CreateCollectionSettings(max_expiry=timedelta(seconds=600)))
    with pytest.raises(CollectionAlreadyExistsException):
        manager.create_collection(scope, "a")
    with pytest.raises(ScopeNotFoundException):
        manager.create_collection(scope + "x", "a")
    with pytest.raises(CouchbaseException):
        manager.create_collection(scope, "_a")
    found = names(manager, scope)
    assert set(found) == {"a", "b"}
    assert found["b"].max_expiry == timedelta(seconds=600)
    manager.update_collection(scope, "b", UpdateCollectionSettings(max_expiry=timedelta(seconds=60)))
    assert names(manager, scope)["b"].max_expiry == timedelta(seconds=60)
    manager.drop_collection(scope, "a")
    with pytest.raises(CollectionNotFoundException):
        manager.drop_collection(scope, "a")
    assert set(names(manager, scope)) == {"b"}
    manager.drop_scope(scope)
    with pytest.raises(ScopeNotFoundException):
        manager.drop_scope(scope)
    assert names(manager, scope) is None


def test_documents_are_apart(manager, scope, bucket, collection, key):
    for name in ("a", "b"):
        manager.create_collection(scope, name)
    a, b = (bucket.scope(scope).collection(name) for name in ("a", "b"))
    for value, where in enumerate((a, b, collection)):
        where.upsert(key, value)
    for value, where in enumerate((a, b, collection)):
        assert where.get(key).content_as[int] == value
    a.remove(key)
    assert [where.exists(key).exists for where in (a, b, collection)] == [False, True, True]


def test_unknown_collections(manager, scope, bucket, key):
    soon = GetOptions(timeout=timedelta(seconds=2))
    for missing in (bucket.scope(scope), bucket.scope(scope + "x")):
        with pytest.raises(CouchbaseException):
            missing.collection("none").get(key, soon)


def test_made_anew_it_is_empty(manager, scope, bucket, key):
    manager.create_collection(scope, "a")
    a = bucket.scope(scope).collection("a")
    for value in range(3):
        deadline.until(lambda: is_there(a, key) is False, "the new collection is used, and empty")
        a.upsert(key, value)
        assert a.get(key).content_as[int] == value
        manager.drop_collection(scope, "a")
        manager.create_collection(scope, "a")
