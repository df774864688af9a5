"""pymemcache: the text protocol."""

import pytest
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

import deadline
import kedge_server


@pytest.fixture(scope="module")
def client(address):
    connected = Client(address, connect_timeout=60, timeout=60, default_noreply=False)
    yield connected
    connected.close()


@pytest.mark.parametrize("value", [b"", b"value", b"with\r\nlines\r\n", bytes(range(256)) * 1000], ids=len)
def test_set_and_get(client, key, value):
    assert client.get(key) is None
    assert client.set(key, value)
    assert client.get(key) == value


def test_add_replace_delete(client, key):
    assert not client.replace(key, b"0")
    assert client.add(key, b"1")
    assert not client.add(key, b"2")
    assert client.replace(key, b"3")
    assert client.get(key) == b"3"
    assert client.delete(key)
    assert not client.delete(key)


def test_append_and_prepend(client, key):
    assert not client.append(key, b"x")
    client.set(key, b"middle")
    assert client.append(key, b"-end")
    assert client.prepend(key, b"start-")
    assert client.get(key) == b"start-middle-end"


def test_gets_and_cas(client, key):
    assert client.cas(key, b"0", b"1") is None
    client.set(key, b"1")
    value, token = client.gets(key)
    assert value == b"1"
    assert client.cas(key, b"2", token) is True
    assert client.cas(key, b"3", token) is False
    assert client.get(key) == b"2"


def test_counters(client, key):
    assert client.incr(key, 1) is None
    client.set(key, b"10")
    assert client.incr(key, 5) == 15
    assert client.decr(key, 3) == 12
    assert client.decr(key, 100) == 0
    client.set(key, b"text")
    with pytest.raises(MemcacheClientError):
        client.incr(key, 1)


def test_expiry_and_touch(client, key):
    client.set(key, b"1", expire=1)
    deadline.until(lambda: client.get(key) is None, "the item expires")
    client.set(key, b"1")
    assert client.touch(key, 1)
    deadline.until(lambda: client.get(key) is None, "the touched item expires")
    assert not client.touch(key, 1)
    client.set(key, b"1", expire=-1)
    assert client.get(key) is None


def test_noreply(client, key):
    client.set(key, b"1", noreply=True)
    client.append(key, b"2", noreply=True)
    client.incr(key, 1, noreply=True)
    client.add(key, b"no", noreply=True)
    assert client.get(key) == b"13"
    client.touch(key, 100, noreply=True)
    client.delete(key, noreply=True)
    assert client.get(key) is None


def test_many(client, key):
    values = {f"{key}-{n}": b"%d" % n for n in range(1_000)}
    assert client.set_many(values) == []
    assert client.get_many([*values, f"{key}-none"]) == values
    found = client.gets_many(list(values)[:10])
    assert all(value == values[name] and int(token) > 0 for name, (value, token) in found.items())
    assert client.delete_many(list(values))
    assert client.get_many(list(values)) == {}


def test_flags_are_kept(address, key):
    class Both:
        """Sends the same flags with every value and shows those that come back."""

        @staticmethod
        def serialize(key, value):
            return value, 12345

        @staticmethod
        def deserialize(key, value, flags):
            return value, flags

    client = Client(address, serde=Both)
    client.set(key, b"value", noreply=False)
    assert client.get(key) == (b"value", 12345)
    client.close()


def test_stats_and_version(client, key):
    client.set(key, b"1")
    client.get(key)
    stats = client.stats()
    for name in (b"pid", b"uptime", b"time", b"version", b"curr_connections", b"cmd_get", b"get_hits", b"curr_items"):
        assert name in stats, sorted(stats)
    assert int(stats[b"cmd_get"]) > 0
    assert client.version()
    assert isinstance(client.stats("settings"), dict)


def test_raw_commands(client):
    assert client.raw_command("mn") == b"MN"
    assert client.raw_command("verbosity 1") == b"OK"


def test_long_keys(client):
    longest = "k" * 250
    assert client.set(longest, b"1")
    assert client.get(longest) == b"1"
    with pytest.raises(MemcacheClientError):
        client.raw_command("get " + "k" * 251)


@pytest.mark.kedge
def test_large_values(client, key):
    largest = bytes(20 << 20)
    assert client.set(key, largest)
    assert client.get(key) == largest
    with pytest.raises(MemcacheServerError):
        client.set(key, largest + b"x")
    assert client.version()
    client.delete(key)


def test_a_thousand_long_keys_in_one_get(client, key):
    keys = [f"{key}{at}".ljust(250, "k") for at in range(1000)]
    assert client.set(keys[-1], b"1")
    assert client.get_many(keys) == {keys[-1]: b"1"}


def test_an_exptime_beyond_31_bits_is_refused(client, key):
    with pytest.raises(MemcacheClientError):
        client.set(key, b"1", expire=2**31)
    assert client.get(key) is None


@pytest.mark.kedge
def test_login():
    with_login = kedge_server.Server("--memcached-login")
    try:
        with_login.start()
        address = ("127.0.0.1", with_login.memcached_port)
        stranger = Client(address, connect_timeout=60, timeout=60, default_noreply=False)
        with pytest.raises(MemcacheClientError, match="unauthenticated"):
            stranger.get("key")
        with pytest.raises(MemcacheClientError, match="authentication failure"):
            stranger.set("login", f"{kedge_server.USER} wrong")
        assert stranger.set("login", f"{kedge_server.USER} {kedge_server.PASSWORD}")
        assert stranger.set("key", b"1")
        assert stranger.get("key") == b"1"
        stranger.close()
    finally:
        with_login.remove()


def test_delayed_flush_comes_almost_last(client, key):
    client.set(key, b"1")
    assert client.flush_all(delay=1)
    deadline.until(lambda: client.get(key) is None, "the flush")


def test_flush_all_comes_last(client, key):
    client.set(key, b"1")
    assert client.flush_all()
    assert client.get(key) is None
    assert client.set(key, b"2")
    assert client.get(key) == b"2"


def test_quit_closes(address):
    client = Client(address)
    client.version()
    client.quit()
    assert client.version()
