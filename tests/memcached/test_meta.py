"""The meta commands, flag by flag, as memcached's doc/protocol.txt has them."""

import base64

import pytest

import deadline
from meta_client import MetaClient


@pytest.fixture
def client(address):
    with MetaClient(address) as connected:
        yield connected


def test_noop(client):
    assert client.call("mn").code == "MN"


def test_set_and_get(client, key):
    assert client.get(key, "v").code == "EN"
    assert client.set(key, b"value").code == "HD"
    assert client.get(key, "v")[:3] == ("VA", {}, b"value")
    assert client.get(key).code == "HD"


def test_get_returns_what_was_asked_for(client, key):
    assert client.set(key, b"value", "F7", "T3600").code == "HD"
    reply = client.get(key, "s", "v", "f", "c", "t", "k", "Oabc")
    assert (reply.code, reply.value) == ("VA", b"value")
    assert (reply.flags["s"], reply.flags["f"], reply.flags["k"], reply.flags["O"]) == ("5", "7", key, "abc")
    assert int(reply.flags["c"]) > 0
    assert 3500 < int(reply.flags["t"]) <= 3600
    assert list(reply.flags) == ["s", "f", "c", "t", "k", "O"], "flags come in the order of the request"
    client.set(key, b"value")
    assert client.get(key, "t").flags["t"] == "-1"


def test_miss_shows_no_flags_of_an_item(client, key):
    assert client.get(key, "s", "v", "t").line == "EN"


def test_binary_keys(client, key):
    raw = bytes([0, 1, 32, 255]) + key.encode()
    encoded = base64.b64encode(raw).decode()
    assert client.set(encoded, b"value", "b").code == "HD"
    reply = client.get(encoded, "b", "k", "v")
    assert (reply.value, reply.flags["k"]) == (b"value", encoded)
    assert "b" in reply.flags
    assert client.get(encoded, "v").code == "EN", "the text is another key"
    assert client.delete(encoded, "b").code == "HD"


def test_modes(client, key):
    assert client.set(key, b"x", "MR").code == "NS"
    assert client.set(key, b"x", "MA").code == "NS"
    assert client.set(key, b"x", "MP").code == "NS"
    assert client.set(key, b"0", "MS").code == "HD"
    assert client.delete(key).code == "HD"
    assert client.set(key, b"1", "ME").code == "HD"
    assert client.set(key, b"2", "ME").code == "NS"
    assert client.set(key, b"3", "MR").code == "HD"
    assert client.set(key, b"4", "MA").code == "HD"
    assert client.set(key, b"2", "MP").code == "HD"
    assert client.get(key, "v").value == b"234"


def test_compare_cas(client, key):
    assert client.set(key, b"1", "C1").code == "NF"
    first = client.set(key, b"1", "c").flags["c"]
    assert client.get(key, "c").flags["c"] == first
    assert client.set(key, b"2", f"C{int(first) + 1}").code == "EX"
    second = client.set(key, b"2", f"C{first}", "c").flags["c"]
    assert int(second) > int(first)
    assert client.delete(key, f"C{first}").code == "EX"
    assert client.delete(key, f"C{second}").code == "HD"
    assert client.delete(key).code == "NF"


def test_arithmetic(client, key):
    assert client.arithmetic(key).code == "NF"
    assert client.arithmetic(key, "N0", "J10", "v").value == b"10"
    assert client.arithmetic(key, "v").value == b"11"
    assert client.arithmetic(key, "D5").code == "HD"
    assert client.arithmetic(key, "MD", "D6", "v").value == b"10"
    assert client.arithmetic(key, "MI", "D1", "v").value == b"11"
    assert client.arithmetic(key, "MD", "D100", "v").value == b"0"
    client.set(key, str(2**64 - 1).encode())
    assert client.arithmetic(key, "v").value == b"0"
    client.set(key, b"text")
    assert client.arithmetic(key).line.startswith("CLIENT_ERROR")


def test_expiry_and_touch(client, key):
    client.set(key, b"value", "T1")
    deadline.until(lambda: client.get(key).code == "EN", "the item expires")
    client.set(key, b"value")
    assert client.get(key, "T100", "t").flags["t"] in ("99", "100")
    client.set(key, b"value", "T-1")
    assert client.get(key).code == "EN"


def test_vivify(client, key):
    first = client.get(key, "N30", "v", "t")
    assert (first.code, first.value) == ("VA", b"")
    assert "W" in first.flags
    second = client.get(key, "N30", "v", "t")
    assert "Z" in second.flags and "W" not in second.flags


def test_invalidate_keeps_a_stale_item(client, key):
    cas = client.set(key, b"old", "c").flags["c"]
    assert client.delete(key, "I", "T30").code == "HD"
    stale = client.get(key, "v", "c")
    assert (stale.value, "X" in stale.flags, "W" in stale.flags) == (b"old", True, True)
    waiting = client.get(key, "v", "c")
    assert (waiting.value, "X" in waiting.flags, "Z" in waiting.flags) == (b"old", True, True)
    assert waiting.flags["c"] != cas
    assert client.set(key, b"new", f"C{waiting.flags['c']}").code == "HD"
    fresh = client.get(key, "v")
    assert (fresh.value, fresh.flags) == (b"new", {})


def test_a_cas_of_the_clients_own(client, key):
    assert client.set(key, b"1", "E973 c").flags["c"] == "973"
    assert client.set(key, b"2", "C973 E4000").code == "HD"
    assert client.call(f"mg {key} c v").flags["c"] == "4000"


def test_a_stale_value_hands_out_no_second_win(client, key):
    client.set(key, b"old", "T100")
    client.call(f"md {key} I T30")
    assert "W" in client.call(f"mg {key} v").flags
    assert client.set(key, b"older", "I T90 C1").code == "HD"
    seen = client.call(f"mg {key} v t")
    assert seen.value == b"older"
    assert {"X", "Z"} <= set(seen.flags) and "W" not in seen.flags
    assert int(seen.flags["t"]) <= 30


def test_failures_tell_what_was_asked_for(client, key):
    assert client.set(key, b"1", "MA C5000 c s Oq").line == "NS c0 s1 Oq"
    assert client.set(key, b"1").code == "HD"
    assert client.set(key, b"22", "MA s").line == "HD s3"
    assert client.set(key, b"3", "C5 c").line == "EX c0"


def test_hits_are_told(client, key):
    client.set(key, b"1")
    assert client.call(f"mg {key} u h").line == "HD h0"
    assert client.call(f"mg {key} h").line == "HD h0"
    assert client.call(f"mg {key} h").line == "HD h1"


def test_quiet_mode(client, key):
    client.send(f"mg {key} v q\r\nms {key} 1 q\r\nx\r\nmg {key} v q k\r\nmd {key} q\r\nmn\r\n")
    hit = client.reply()
    assert (hit.code, hit.value, hit.flags["k"]) == ("VA", b"x", key)
    assert client.reply().code == "MN"


def test_quiet_mode_shows_failures(client, key):
    client.send(f"ms {key} 1 q MR O1\r\nx\r\nmn\r\n")
    failed = client.reply()
    assert (failed.code, failed.flags["O"]) == ("NS", "1")
    assert client.reply().code == "MN"


def test_opaque_and_key_on_every_command(client, key):
    assert client.set(key, b"1", "k", "O9").flags == {"k": key, "O": "9"}
    reply = client.arithmetic(key, "O9", "k")
    assert (reply.code, reply.flags) == ("HD", {"O": "9", "k": key})
    assert client.delete(key, "O9", "k").flags == {"O": "9", "k": key}


def test_debug(client, key):
    assert client.call(f"me {key}").line.startswith("EN")
    client.set(key, b"value")
    line = client.call(f"me {key}").line
    assert line.startswith(f"ME {key} ")
    assert "size=" in line


@pytest.mark.parametrize(
    "line",
    ["mg", "mg {long} v", "ms {key}", "ms {key} x", "ms {key} -1", "mg {key} v v", "ma {key} Dx"],
)
def test_malformed_commands(client, key, line):
    reply = client.call(line.format(key=key, long="k" * 251))
    assert reply.line.startswith(("CLIENT_ERROR", "ERROR")), reply.line


def test_connection_survives_errors(client, key):
    assert client.call(f"mg {key} v v").line.startswith("CLIENT_ERROR")
    assert client.call("mn").code == "MN"
    assert client.call("nonsense").line == "ERROR"
    assert client.call("mn").code == "MN"


def test_bad_data_chunk(client, key):
    client.send(f"ms {key} 2\r\nabcd\r\n")
    assert client.reply().line == "CLIENT_ERROR bad data chunk"


def test_many_commands_in_one_write(client, key):
    count = 2_000
    client.send("".join(f"ms {key}-{n} 4\r\n{n:04}\r\n" for n in range(count)))
    assert all(client.reply().code == "HD" for _ in range(count))
    client.send("".join(f"mg {key}-{n} v\r\n" for n in range(count)))
    assert [client.reply().value for _ in range(count)] == [b"%04d" % n for n in range(count)]


def test_commands_byte_by_byte(client, key):
    for byte in f"ms {key} 5 T60\r\nvalue\r\nmg {key} v\r\n".encode():
        client.send(bytes([byte]))
    assert client.reply().code == "HD"
    assert client.reply().value == b"value"
