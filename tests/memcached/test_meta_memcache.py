"""meta-memcache, a maintained client that speaks meta commands only."""

import pytest
from meta_memcache import CacheClient, Key, ServerAddress, SetMode, connection_pool_factory_builder
from meta_memcache.configuration import LeasePolicy, StalePolicy

import deadline


@pytest.fixture(scope="module")
def client(address):
    factory = connection_pool_factory_builder(connection_timeout=60, recv_timeout=60)
    return CacheClient.cache_client_from_servers(
        servers=[ServerAddress(*address)], connection_pool_factory_fn=factory
    )


@pytest.mark.parametrize("value", ["text", b"bytes", 7, {"a": [1, None]}, "x" * 100_000], ids=type)
def test_set_and_get(client, key, value):
    assert client.get(key) is None
    assert client.set(key, value, ttl=300)
    assert client.get(key) == value
    assert client.delete(key)
    assert not client.delete(key)
    assert client.get(key) is None


def test_unicode_and_long_keys(client, key):
    for odd in (Key(f"🍺-{key}"), Key("long" * 100 + key)):
        assert client.set(odd, 1, ttl=300)
        assert client.get(odd) == 1


def test_modes(client, key):
    assert not client.set(key, "a", ttl=300, set_mode=SetMode.REPLACE)
    assert client.refill(key, "a", ttl=300)
    assert not client.refill(key, "b", ttl=300)
    assert client.set(key, "b", ttl=300, set_mode=SetMode.APPEND)
    assert client.set(key, "c", ttl=300, set_mode=SetMode.PREPEND)
    assert client.get(key) == "cab"


def test_cas(client, key):
    client.set(key, 1, ttl=300)
    value, token = client.get_cas(key)
    assert value == 1
    if token is None:
        # This client reads tokens of at most 32 bits; the protocol has 64, and Kedge's need them. See test_meta.py.
        return
    assert client.set(key, 2, ttl=300, cas_token=token)
    assert not client.set(key, 3, ttl=300, cas_token=token)
    assert client.get(key) == 2


def test_multi_get(client, key):
    keys = [Key(f"{key}-{n}") for n in range(500)]
    for n, one in enumerate(keys):
        client.set(one, n, ttl=300, no_reply=True)
    found = client.multi_get([*keys, Key(f"{key}-none")])
    assert [found[one] for one in keys] == list(range(500))
    assert found[Key(f"{key}-none")] is None


def test_counters(client, key):
    assert client.delta_initialize_and_get(key, delta=1, initial_value=10, initial_ttl=300) == 10
    assert client.delta_and_get(key, delta=5) == 15
    assert client.delta_and_get(key, delta=-3) == 12
    assert client.delta(key, delta=1)
    assert client.delta_and_get(key, delta=0) == 13


def test_touch_and_expiry(client, key):
    client.set(key, 1, ttl=300)
    assert client.touch(key, ttl=1)
    deadline.until(lambda: client.get(key) is None, "the touched item expires")


def test_lease_on_a_miss(client, key):
    policy = LeasePolicy(ttl=10, miss_retries=1)
    assert client.get_or_lease(key, lease_policy=policy) is None
    assert client.set(key, "filled", ttl=300)
    assert client.get_or_lease(key, lease_policy=policy) == "filled"


def test_stale_items_after_an_invalidation(client, key):
    client.set(key, "old", ttl=300)
    policy = StalePolicy(mark_stale_on_deletion_ttl=30)
    assert client.invalidate(key, stale_policy=policy)
    assert client.get(key) is None, "this client has won the right to fill it again"
    assert client.get(key) == "old", "others are served the stale value meanwhile"
