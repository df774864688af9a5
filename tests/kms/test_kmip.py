"""Master keys in a KMIP server."""

import threading

import pytest

import deadline
import kmip_server

ENCRYPT, GET = "useEncryptDecrypt", "useGet"


@pytest.fixture
def up(kmip):
    """The server, which runs again after the test."""
    yield kmip
    if not kmip.is_running():
        kmip.start()


@pytest.mark.parametrize("approach", [ENCRYPT, GET])
def test_first_start_creates_a_wrapped_key_and_a_restart_unwraps_it(kmip, kedge, approach):
    key = kmip.key()
    source = kmip.source(key, encryptionApproach=approach)
    server = kedge().serve(source)
    server.set("document", "the content of a document")
    name = server.status()["masterKey"]
    assert name.startswith(f"kmip:{key}" if approach == ENCRYPT else "local:")
    assert server.status()["masterKeySource"] == f"kmip:127.0.0.1:{kmip.port}/{key}"
    about = server.master_key()
    assert (about["type"], about["data"]["host"], about["data"]["port"]) == ("kmip-aes-key-256", "127.0.0.1", kmip.port)
    assert (about["data"]["kmipId"], about["data"]["encryptionApproach"]) == (key, approach)
    assert "the master key works" in server.tool("encryption", "test-key")
    assert server.terminate() == 0
    assert not server.has_on_disk("the content of a document")
    server.serve(source)
    assert server.get("document") == "the content of a document"
    assert server.wrapped_key()[0] == name
    material = kmip.material(key)
    assert material.hex() not in server.stderr()
    assert not server.has_on_disk(material.hex())


def test_server_encrypts_unless_the_key_is_asked_for(kmip, kedge):
    server = kedge().serve(kmip.source(kmip.key()))
    assert server.master_key()["data"]["encryptionApproach"] == ENCRYPT
    assert server.admin.metric("kedge_master_key_requests") == 3


def test_keys_that_cannot_be_used_are_clear_errors(kmip, kedge):
    server = kedge()
    assert "Item Not Found" in server.refusal(kmip.source("999999"), wait="60s")
    assert "Item Not Found" in server.refusal(kmip.source("999999", encryptionApproach=GET), wait="60s")
    assert "Permission Denied" in server.refusal(kmip.source(kmip.key(is_active=False)), wait="60s")
    short = kmip.source(kmip.key(bits=128), encryptionApproach=GET)
    assert "not a key of 32 bytes" in server.refusal(short, wait="60s")
    key = kmip.key()
    server.serve(kmip.source(key)).terminate()
    kmip.revoke(key)
    assert f"/{key} cannot be used: Permission Denied" in server.refusal(kmip.source(key), wait="60s")


def test_wrong_certificates_are_clear_errors(kmip, kedge, tmp_path):
    key = kmip.key()
    server = kedge()
    # Another caller has no rights to the key.
    other = {"certPath": kmip.home / "other.pem", "keyPath": kmip.home / "other-key.pem"}
    assert "cannot be used: " in server.refusal(kmip.source(key, **other), wait="60s")
    kmip_server.certify(tmp_path, "kedge")
    stranger = {"certPath": tmp_path / "kedge.pem", "keyPath": tmp_path / "kedge-key.pem"}
    assert "cannot be used: TLS with 127.0.0.1" in server.refusal(kmip.source(key, **stranger), wait="60s")
    assert "cannot be used: TLS with 127.0.0.1" in server.refusal(kmip.source(key, caPath=tmp_path / "ca.pem"), wait="60s")
    refusal = server.refusal(kmip.source(key, keyPath=tmp_path / "missing.pem"), wait="60s")
    assert "missing.pem" in refusal


def test_start_waits_for_a_server_that_is_down_and_not_forever(up, kedge):
    key = up.source(up.key())
    server = kedge()
    server.serve(key).terminate()
    up.stop()
    refusal = server.refusal(key, wait="1s")
    assert "is unavailable: cannot connect to 127.0.0.1" in refusal
    log = len(server.stderr())
    start = threading.Thread(target=server.serve, args=(key,))
    start.start()
    deadline.until(lambda: "is asked again" in server.stderr()[log:], "the start waits")
    up.start()
    start.join(deadline.SECONDS)
    assert server.status()["enabled"]


def test_server_that_does_not_answer_is_a_clear_error(kmip, kedge):
    silent = kmip_server.Silent()
    try:
        source = kmip.source("1", reqTimeoutMs=300).replace(f":{kmip.port}/", f":{silent.port}/")
        assert "is unavailable: " in kedge().refusal(source)
    finally:
        silent.close()


def test_running_server_does_not_need_the_kmip_server(up, kedge):
    server = kedge().serve(up.source(up.key()))
    server.set("before", "1")
    up.stop()
    server.set("after", "2")
    assert (server.get("before"), server.get("after")) == ("1", "2")
    server.tool("encryption", "rotate")
    _, wrapped = server.wrapped_key()
    reply = server.admin.request("POST", "/controller/rotateEncryptionKey/1")
    assert (reply.status, "is unavailable" in reply.body) == (503, True), reply.body
    assert server.admin.metric("kedge_master_key_failures") > 0
    up.start()
    deadline.until(lambda: server.wrapped_key()[1] != wrapped, "the data keys are wrapped again")


def test_master_key_moves_between_keys_and_approaches(kmip, kedge):
    server = kedge()
    (server.directory / "master.key").write_text("5a" * 32)
    file = f"file:{server.directory / 'master.key'}"
    first, second = kmip.key(), kmip.key()
    sources = [file, kmip.source(first), kmip.source(second), kmip.source(second, encryptionApproach=GET), file]
    server.serve(file)
    server.set("document", "content")
    for previous, source in zip(sources, sources[1:]):
        assert server.terminate() == 0
        server.serve(source, previous)
        assert server.terminate() == 0
        server.serve(source)
        assert server.get("document") == "content"
    assert "5a" * 32 not in server.stderr()
    assert kmip.material(second).hex() not in server.stderr()
