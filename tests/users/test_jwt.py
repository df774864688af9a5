"""External users with tokens of an issuer inside of the test."""

import json
import ssl
import time

import pytest

import deadline
import issuer
import wire
from management import Management

JWT = "/settings/jwt"


def settings(**changed):
    of_issuer = {
        "name": issuer.NAME,
        "audiences": [issuer.AUDIENCE],
        "algorithms": ["ES256"],
        "groupsClaim": "groups",
        "rules": [
            {"value": "devs", "group": "developers"},
            {"value": "read-*", "roles": "data_reader[default]"},
        ],
        "leewaySecs": 0,
        **changed,
    }
    return {"enabled": True, "issuers": [of_issuer]}


def put(admin, document):
    return admin.request("PUT", JWT, json.dumps(document))


@pytest.fixture
def key():
    return issuer.Key("first")


@pytest.fixture
def jwt(admin, key):
    """Tokens of a key that is in the settings."""
    admin.group("developers", "data_writer[default]")
    reply = put(admin, settings(jwks={"keys": [key.public()]}))
    assert reply.status == 200, reply.body
    return admin


def status_of(server, token):
    return Management(server.mgmt_port, token=token).get("/whoami").status


def bearer(server, token):
    """A connection that has logged in, and the status."""
    client = wire.Client(server.kv_tls_port, tls=ssl.create_default_context(cafile=str(server.certificate)))
    return client, client.call(wire.SASL_AUTH, b"OAUTHBEARER", f"n,,\x01auth=Bearer {token}\x01\x01".encode())[0]


def test_token_gives_rights_by_its_groups(server, jwt, key):
    client, status = bearer(server, key.token())
    with client:
        assert status == wire.SUCCESS
        assert b"OAUTHBEARER" in client.call(wire.SASL_LIST)[1]
        assert client.select() == wire.SUCCESS
        assert client.set("key", "value") == wire.SUCCESS
        assert client.get("key") == wire.ACCESS_DENIED
    client, status = bearer(server, key.token(groups=["x", "read-all"]))
    with client:
        assert (status, client.select(), client.get("missing")) == (wire.SUCCESS, wire.SUCCESS, wire.NOT_FOUND)
    about = Management(server.mgmt_port, token=key.token()).do("GET", "/whoami").json()
    assert (about["id"], about["domain"]) == ("ada", "external")
    assert [role["role"] for role in about["roles"]] == ["data_writer"]
    # Roles of the name count, too; a user without any is no user.
    assert status_of(server, key.token(sub="eve", groups=[])) == 401
    jwt.external_user("eve", "data_reader[default]")
    assert status_of(server, key.token(sub="eve", groups=[])) == 200


def test_token_is_accepted_over_tls_only(server, jwt, key):
    with wire.Client(server.kv_port) as client:
        assert b"OAUTHBEARER" not in client.call(wire.SASL_LIST)[1]
        message = f"n,,\x01auth=Bearer {key.token()}\x01\x01".encode()
        assert client.call(wire.SASL_AUTH, b"OAUTHBEARER", message)[0] == wire.AUTH_ERROR


def test_invalid_tokens_are_refused(server, jwt, key):
    now = int(time.time())
    stranger = issuer.Key("first")
    good = key.token()
    head, claims, signature = good.split(".")
    public = json.dumps(key.public()).encode()
    for name, token in {
        "expired": key.token(exp=now - 1),
        "without an end": key.token(exp=None),
        "not valid yet": key.token(nbf=now + 600),
        "lives too long": key.token(exp=now + 90_000),
        "another audience": key.token(aud="other"),
        "no audience": key.token(aud=None),
        "another issuer": key.token(iss="https://other.example.org"),
        "no issuer": key.token(iss=None),
        "another key": stranger.token(),
        "an unknown key": issuer.Key("second").token(),
        "an algorithm that is not allowed": issuer.Key("first", "RS256").token(),
        "no algorithm": issuer.unsigned({"alg": "none"}, key),
        "no algorithm, in other letters": issuer.unsigned({"alg": "NoNe"}, key),
        "the public key as a secret": issuer.unsigned({"alg": "HS256", "kid": "first"}, key, public),
        "a key of its own": key.token({"jwk": stranger.public(), "kid": "other"}),
        "an extension": key.token({"crit": ["exp"]}),
        "a reserved user": key.token(sub="kedge.cluster"),
        "an id as the user": key.token(sub="^ada"),
        "other claims": f"{head}.{issuer.encode({'sub': 'root'})}.{signature}",
        "no signature": f"{head}.{claims}.",
        "a part less": f"{head}.{claims}",
        "a part more": f"{good}.x",
        "nothing": "",
        "a large text": "x" * 20_000,
    }.items():
        assert status_of(server, token) == 401, name
        client, status = bearer(server, token)
        with client:
            assert status == wire.AUTH_ERROR, name
    assert status_of(server, good) == 200
    assert jwt.metric("kedge_jwt_refused") > 0


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "EdDSA"])
def test_algorithms(server, jwt, algorithm):
    other = issuer.Key("other", algorithm)
    document = settings(jwks={"keys": [other.public()]}, algorithms=[algorithm])
    assert put(jwt, document).status == 200
    assert status_of(server, other.token()) == 200
    # A key without a name, if there is no choice.
    assert status_of(server, other.token({"kid": None})) == 200


def test_keys_are_fetched_and_rotate(server, admin, key):
    admin.group("developers", "data_writer[default]")
    keys = issuer.Keys()
    try:
        keys.keys = [key]
        document = settings(jwksUri=keys.uri, cacert=keys.authority)
        assert put(admin, document).status == 200
        assert [status_of(server, key.token()) for _ in range(5)] == [200] * 5
        assert keys.requests == 1
        # A new key is noticed by the first token of it, when the pause since the last request is over.
        rotated = issuer.Key("rotated")
        keys.keys = [rotated]
        deadline.until(lambda: status_of(server, rotated.token()) == 200, "the new key is known")
        requests = keys.requests
        assert status_of(server, key.token()) == 401
        # Invented keys do not become requests.
        for number in range(10):
            assert status_of(server, issuer.Key(f"invented {number}").token()) == 401
        assert keys.requests <= requests + 1
    finally:
        keys.close()


def test_issuer_that_cannot_be_asked_is_a_temporary_failure(server, admin, key):
    keys = issuer.Keys()
    uri, authority = keys.uri, keys.authority
    keys.close()
    assert put(admin, settings(jwksUri=uri, cacert=authority)).status == 200
    reply = Management(server.mgmt_port, token=key.token()).get("/whoami")
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    client, status = bearer(server, key.token())
    with client:
        assert status == wire.TEMPORARY_FAILURE
    assert "cannot fetch the keys of an issuer" in server.stderr()


def test_connection_needs_another_token_when_its_token_expires(server, jwt, key):
    client, status = bearer(server, key.token(exp=int(time.time()) + 3))
    with client:
        assert status == wire.SUCCESS
        assert client.select() == wire.SUCCESS
        deadline.until(lambda: client.set("key", "value") == wire.AUTH_STALE, "the token expires")
        message = f"n,,\x01auth=Bearer {key.token()}\x01\x01".encode()
        assert client.call(wire.SASL_AUTH, b"OAUTHBEARER", message)[0] == wire.SUCCESS
        assert client.set("key", "value") == wire.SUCCESS
        # Tokens that are not accepted any more give nothing, on open connections, too.
        jwt.do("DELETE", JWT)
        assert client.set("key", "value") != wire.SUCCESS


def test_settings_that_cannot_work_are_refused(server, jwt):
    for document in [
        {"enabled": True, "issuers": []},
        settings(),
        settings(jwksUri="http://x/"),
        settings(jwks={"keys": []}, algorithms=["none"]),
        settings(jwks={"keys": []}, algorithms=["HS256"]),
        settings(jwks={"keys": []}, other=1),
    ]:
        assert put(jwt, document).status == 400, document
    assert len(jwt.do("GET", JWT).json()["issuers"]) == 1
    assert server.terminate() == 0
    server.start()
    assert jwt.do("GET", JWT).json()["enabled"] is True
