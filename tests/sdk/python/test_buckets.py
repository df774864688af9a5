import uuid
from datetime import timedelta

import pytest
from couchbase.exceptions import (
    BucketAlreadyExistsException,
    BucketDoesNotExistException,
    BucketNotFlushableException,
    CouchbaseException,
)
from couchbase.durability import DurabilityLevel
from couchbase.management.buckets import (
    BucketSettings,
    BucketType,
    CompressionMode,
    ConflictResolutionType,
    CreateBucketSettings,
    EvictionPolicyType,
)

import deadline


@pytest.fixture
def manager(cluster):
    return cluster.buckets()


@pytest.fixture
def bucket_name(manager):
    name = f"b-{uuid.uuid4().hex[:12]}"
    yield name
    try:
        manager.drop_bucket(name)
    except BucketDoesNotExistException:
        pass


def open_collection(cluster, name):
    """A new bucket takes a moment to open; the client reports that as an error of its own."""
    opened = []

    def can_open():
        try:
            opened.append(cluster.bucket(name).default_collection())
            opened[-1].exists("any")
            return True
        except CouchbaseException:
            return False

    deadline.until(can_open, f"bucket {name} opens")
    return opened[-1]


def test_create_use_flush_drop(cluster, manager, bucket_name):
    settings = CreateBucketSettings(name=bucket_name, ram_quota_mb=100, flush_enabled=True, num_replicas=0)
    manager.create_bucket(settings)
    with pytest.raises(BucketAlreadyExistsException):
        manager.create_bucket(settings)
    created = manager.get_bucket(bucket_name)
    assert (created.name, created.ram_quota_mb, created.flush_enabled) == (bucket_name, 100, True)
    assert bucket_name in [one.name for one in manager.get_all_buckets()]
    described = manager.bucket_describe(bucket_name)
    assert (described.name, described.number_of_nodes) == (bucket_name, 1)

    collection = open_collection(cluster, bucket_name)
    collection.upsert("key", 1)
    manager.flush_bucket(bucket_name)
    deadline.until(lambda: not collection.exists("key").exists, "the flush empties the bucket")
    collection.upsert("key", 2)
    assert collection.get("key").content_as[int] == 2

    manager.drop_bucket(bucket_name)
    with pytest.raises(BucketDoesNotExistException):
        manager.get_bucket(bucket_name)
    with pytest.raises(BucketDoesNotExistException):
        manager.drop_bucket(bucket_name)


def test_flush_must_be_enabled(cluster, manager, bucket_name):
    manager.create_bucket(CreateBucketSettings(name=bucket_name, ram_quota_mb=100, flush_enabled=False))
    with pytest.raises(BucketNotFlushableException):
        manager.flush_bucket(bucket_name)
    manager.update_bucket(BucketSettings(name=bucket_name, ram_quota_mb=128, flush_enabled=True))
    updated = manager.get_bucket(bucket_name)
    assert (updated.ram_quota_mb, updated.flush_enabled) == (128, True)
    manager.flush_bucket(bucket_name)


def test_other_buckets_keep_their_documents(cluster, manager, bucket_name, collection, key):
    collection.upsert(key, "here")
    manager.create_bucket(CreateBucketSettings(name=bucket_name, ram_quota_mb=100, flush_enabled=True))
    other = open_collection(cluster, bucket_name)
    assert not other.exists(key).exists
    manager.flush_bucket(bucket_name)
    manager.drop_bucket(bucket_name)
    assert collection.get(key).content_as[str] == "here"


def settings_of(manager, name):
    got = manager.get_bucket(name)
    return (
        got.ram_quota_mb,
        got.flush_enabled,
        got.num_replicas,
        got.max_expiry,
        got.compression_mode,
        got.eviction_policy,
        got.minimum_durability_level,
    )


def test_settings_are_what_was_asked_for(cluster, manager, bucket_name):
    asked = dict(
        name=bucket_name,
        ram_quota_mb=101,
        flush_enabled=False,
        num_replicas=2,
        max_expiry=timedelta(hours=1),
        compression_mode=CompressionMode.ACTIVE,
        eviction_policy=EvictionPolicyType.FULL,
        minimum_durability_level=DurabilityLevel.MAJORITY,
    )
    order = ConflictResolutionType.TIMESTAMP
    manager.create_bucket(
        CreateBucketSettings(conflict_resolution_type=order, bucket_type=BucketType.COUCHBASE, **asked)
    )
    assert settings_of(manager, bucket_name) == tuple(asked.values())[1:]
    asked.update(
        ram_quota_mb=102,
        flush_enabled=True,
        num_replicas=1,
        max_expiry=timedelta(0),
        compression_mode=CompressionMode.OFF,
        eviction_policy=EvictionPolicyType.VALUE_ONLY,
        minimum_durability_level=DurabilityLevel.PERSIST_TO_MAJORITY,
    )
    manager.update_bucket(BucketSettings(**asked))
    assert settings_of(manager, bucket_name) == tuple(asked.values())[1:]
    asked.update(num_replicas=4)
    with pytest.raises(CouchbaseException, match="Replica number larger than 3"):
        manager.update_bucket(BucketSettings(**asked))
