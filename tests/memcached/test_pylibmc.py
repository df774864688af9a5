"""pylibmc, the binding of libmemcached, over the text and the binary protocol."""

import pylibmc
import pytest

import deadline


@pytest.fixture(scope="module", params=["text", "binary"])
def client(request, address):
    connected = pylibmc.Client(
        ["%s:%d" % address],
        binary=request.param == "binary",
        behaviors={"tcp_nodelay": True, "cas": True},
    )
    yield connected
    connected.disconnect_all()


@pytest.mark.parametrize("value", ["text", b"bytes", 7, {"a": [1, None]}, b"x" * 500_000], ids=type)
def test_set_and_get(client, key, value):
    assert client.get(key) is None
    assert client.set(key, value)
    assert client.get(key) == value


def replaces(client, key):
    """A replace of what is not there is False over the text protocol and an exception over the binary one."""
    try:
        return client.replace(key, "0")
    except pylibmc.NotFound:
        return False


def test_add_replace_delete(client, key):
    assert not replaces(client, key)
    assert client.add(key, "1")
    assert not client.add(key, "2")
    assert client.replace(key, "3")
    assert client.get(key) == "3"
    assert client.delete(key)
    assert not client.delete(key)


def test_append_and_prepend(client, key):
    client.set(key, "middle")
    assert client.append(key, "-end")
    assert client.prepend(key, "start-")
    assert client.get(key) == "start-middle-end"


def test_cas(client, key):
    client.set(key, "1")
    value, token = client.gets(key)
    assert value == "1"
    assert client.cas(key, "2", token)
    assert not client.cas(key, "3", token)


def test_counters(client, key):
    with pytest.raises(pylibmc.NotFound):
        client.incr(key)
    client.set(key, 10)
    assert client.incr(key, 5) == 15
    assert client.decr(key, 3) == 12


def test_expiry_and_touch(client, key):
    client.set(key, 1, time=1)
    deadline.until(lambda: client.get(key) is None, "the item expires")
    client.set(key, 1)
    assert client.touch(key, 1)
    deadline.until(lambda: client.get(key) is None, "the touched item expires")


def test_many(client, key):
    values = {f"{key}-{n}": n for n in range(1_000)}
    assert client.set_multi(values) == []
    assert client.get_multi([*values, f"{key}-none"]) == values
    assert client.delete_multi(list(values))
    assert client.get_multi(list(values)) == {}


def test_stats(client):
    ((_, stats),) = client.get_stats()
    names = {name.decode() if isinstance(name, bytes) else name for name in stats}
    assert {"pid", "uptime", "version", "curr_items"} <= names


def test_flush_all_comes_last(client, key):
    client.set(key, 1)
    assert client.flush_all()
    assert client.get(key) is None
