"""python-binary-memcached: the binary protocol, with SASL PLAIN where it is given a user."""

import bmemcached
import pytest

import deadline
import kedge_server


@pytest.fixture(scope="module", params=["anonymous", pytest.param("sasl", marks=pytest.mark.kedge)])
def client(request, address):
    login = (kedge_server.USER, kedge_server.PASSWORD) if request.param == "sasl" else ()
    connected = bmemcached.Client(("%s:%d" % address,), *login, socket_timeout=60)
    yield connected
    connected.disconnect_all()


@pytest.mark.parametrize("value", ["text", b"bytes", 7, 2**40, {"a": [1, None]}, b"x" * 500_000], ids=type)
def test_set_and_get(client, key, value):
    assert client.get(key) is None
    assert client.set(key, value)
    assert client.get(key) == value


def test_add_replace_delete(client, key):
    assert not client.replace(key, "0")
    assert client.add(key, "1")
    assert not client.add(key, "2")
    assert client.replace(key, "3")
    assert client.get(key) == "3"
    assert client.delete(key)
    assert client.get(key) is None


def test_cas(client, key):
    client.set(key, "1")
    value, token = client.gets(key)
    assert value == "1"
    assert client.cas(key, "2", token)
    assert not client.cas(key, "3", token)
    assert client.get(key) == "2"


def test_counters(client, key):
    assert client.incr(key, 1, default=10) == 10
    assert client.incr(key, 5) == 15
    assert client.decr(key, 3) == 12
    assert client.decr(key, 100) == 0


def test_expiry(client, key):
    client.set(key, "1", time=1)
    deadline.until(lambda: client.get(key) is None, "the item expires")


def test_many(client, key):
    values = {f"{key}-{n}": f"value {n}" for n in range(1_000)}
    assert client.set_multi(values) == []
    assert client.get_multi([*values, f"{key}-none"]) == values
    assert client.delete_multi(list(values))
    assert client.get_multi(list(values)) == {}


def test_stats(client):
    (stats,) = client.stats().values()
    assert {"pid", "uptime", "version", "curr_items"} <= set(stats)


@pytest.mark.kedge
def test_wrong_password(address):
    """The client knows another number for it; 0x20, which memcached sends, it shows as it is."""
    client = bmemcached.Client(("%s:%d" % address,), kedge_server.USER, "wrong", socket_timeout=60)
    with pytest.raises(bmemcached.exceptions.MemcachedException, match="32"):
        client.get("key")


@pytest.mark.kedge
def test_a_port_that_asks_for_a_login():
    with_login = kedge_server.Server("--memcached-login")
    try:
        with_login.start()
        address = f"127.0.0.1:{with_login.memcached_port}"
        stranger = bmemcached.Client((address,), socket_timeout=60)
        with pytest.raises(bmemcached.exceptions.MemcachedException, match="32"):
            stranger.set("key", "1")
        known = bmemcached.Client((address,), kedge_server.USER, kedge_server.PASSWORD, socket_timeout=60)
        assert known.set("key", "1")
        assert known.get("key") == "1"
    finally:
        with_login.remove()


def test_flush_all_comes_last(client, key):
    client.set(key, "1")
    assert client.flush_all()
    assert client.get(key) is None
