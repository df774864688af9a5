"""External users whose passwords and groups OpenLDAP has."""

import concurrent.futures
import json

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions
from datetime import timedelta

import deadline
import directory
import kedge_server
import wire
from management import Management

LDAP = "/settings/ldap"


@pytest.fixture
def ldap(admin, slapd):
    """The directory in use: its group of developers may write, everybody may read."""
    admin.group("devs", "data_writer[default]", directory.DEVS.upper())
    admin.group("everybody", "data_reader[default]", directory.EVERYBODY)
    admin.do("POST", LDAP, slapd.settings())
    return admin


def user(server, name, password=None):
    return Management(server.mgmt_port, name, directory.PASSWORDS.get(name) if password is None else password)


def rights(server, name):
    """Whether the user may read and write documents; None if it cannot log in."""
    with wire.Client(server.kv_port) as client:
        if client.plain(name, directory.PASSWORDS[name]) != wire.SUCCESS:
            return None
        if client.select() != wire.SUCCESS:
            return (False, False)
        reads = client.get("missing") == wire.NOT_FOUND
        return (reads, client.set("key", "value") == wire.SUCCESS)


def test_groups_of_the_directory_give_roles(server, ldap):
    assert rights(server, "ada") == (False, True)
    assert rights(server, "bob") == (True, False)
    # A right password without any role is no login.
    assert rights(server, "eve") is None
    about = user(server, "ada").do("GET", "/whoami").json()
    assert (about["id"], about["domain"]) == ("ada", "external")
    assert [role["role"] for role in about["roles"]] == ["data_writer"]
    assert user(server, "bob").get("/settings/rbac/users").status == 403
    assert user(server, "bob").request("POST", "/controller/changePassword", {"password": "other password"}).status == 403


def test_groups_of_groups_count_up_to_the_depth(server, ldap):
    ldap.do("POST", LDAP, {"nestedGroupsEnabled": "true"})
    assert rights(server, "ada") == (True, True)
    assert rights(server, "bob") == (True, False)


def test_groups_are_values_of_an_attribute(server, ldap):
    ldap.do("POST", LDAP, {"groupsQuery": "%D?seeAlso?base"})
    assert rights(server, "eve") == (False, True)


def test_roles_of_the_name_count_without_groups(server, ldap):
    ldap.do("POST", LDAP, {"authorizationEnabled": "false"})
    assert rights(server, "ada") is None
    ldap.external_user("ada", "data_reader[default]")
    assert rights(server, "ada") == (True, False)
    listed = {user["id"]: user for user in ldap.do("GET", "/settings/rbac/users").json()}
    assert listed["ada"]["domain"] == "external"
    assert ldap.do("GET", "/settings/rbac/users/external/ada").json()["roles"][0]["role"] == "data_reader"
    assert ldap.request("PUT", "/settings/rbac/users/external/ada", {"password": "secret!"}).status == 400
    # A change of the roles holds for connections that are open.
    with wire.Client(server.kv_port) as client:
        assert client.plain("ada", directory.PASSWORDS["ada"]) == wire.SUCCESS
        assert client.select() == wire.SUCCESS
        assert client.set("key", "value") == wire.ACCESS_DENIED
        ldap.external_user("ada", "data_writer[default]")
        assert client.set("key", "value") == wire.SUCCESS
    ldap.do("DELETE", "/settings/rbac/users/external/ada")
    assert rights(server, "ada") is None


def test_user_is_found_by_a_search(server, ldap):
    ldap.do("POST", LDAP, {"userDNMapping": json.dumps({"query": directory.USER_QUERY})})
    assert rights(server, "ada") == (False, True)
    assert wire.login(server.kv_port, "nobody", "x") == wire.AUTH_ERROR


@pytest.mark.parametrize("by_search", [False, True])
def test_wrong_and_empty_passwords_and_hostile_names_are_refused(server, ldap, by_search):
    # Whoever is found, or bound without a password, would have these rights.
    ldap.do("POST", LDAP, {"groupsQuery": f"{directory.EVERYBODY}??base?(|(cn=everybody)(member=%D))"})
    if by_search:
        ldap.do("POST", LDAP, {"userDNMapping": json.dumps({"query": directory.USER_QUERY})})
    password = directory.PASSWORDS["ada"]
    for name, tried in [
        ("ada", "wrong"),
        ("ada", ""),
        ("eve", ""),
        ("*", password),
        ("a*", password),
        ("ada)(uid=*", password),
        ("*)(|(uid=ada", password),
        (f"ada,ou=people,{directory.SUFFIX}#", password),
        ("ada+cn=ada", password),
        ("^ada", password),
        ("kedge.cluster", password),
        ("Administrator", password),
        ("\\61da", password),
    ]:
        assert wire.login(server.kv_port, name, tried) == wire.AUTH_ERROR, (name, tried)
        if ":" not in name:
            assert user(server, name, tried).get("/whoami").status == 401, (name, tried)
    assert wire.login(server.kv_port, "ada", password) == wire.SUCCESS


def test_local_user_is_never_asked_for_in_the_directory(server, ldap):
    ldap.do("PUT", "/settings/rbac/users/local/ada", {"password": "local secret", "roles": "data_reader[default]"})
    before = ldap.metric("kedge_ldap_checks")
    assert wire.login(server.kv_port, "ada", directory.PASSWORDS["ada"]) == wire.AUTH_ERROR
    assert wire.login(server.kv_port, "ada", "local secret") == wire.SUCCESS
    assert ldap.metric("kedge_ldap_checks") == before


def test_verified_logins_are_remembered_until_the_settings_change(server, ldap, slapd):
    assert rights(server, "bob") == (True, False)
    checks = ldap.metric("kedge_ldap_checks")
    slapd.stop()
    try:
        assert rights(server, "bob") == (True, False)
        assert user(server, "bob").do("GET", "/whoami").json()["id"] == "bob"
        assert ldap.metric("kedge_ldap_checks") == checks
        # Another password of the same user is no secret of the cache.
        assert wire.login(server.kv_port, "bob", "wrong") == wire.TEMPORARY_FAILURE
        ldap.do("POST", LDAP, {"cacheValueLifetime": "299999"})
        assert wire.login(server.kv_port, "bob", directory.PASSWORDS["bob"]) == wire.TEMPORARY_FAILURE
        reply = user(server, "bob").get("/whoami")
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
        # Local users are not concerned.
        assert wire.login(server.kv_port, kedge_server.USER, kedge_server.PASSWORD) == wire.SUCCESS
        assert ldap.metric("kedge_ldap_failed") > 0
        assert "directory of external users does not answer" in server.stderr()
    finally:
        slapd.start()
    assert rights(server, "bob") == (True, False)


def test_many_logins_of_one_user_ask_the_directory_once(server, ldap):
    before = ldap.metric("kedge_ldap_checks")
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        statuses = list(pool.map(lambda _: wire.login(server.kv_port, "ada", directory.PASSWORDS["ada"]), range(64)))
    assert statuses == [wire.SUCCESS] * 64
    assert ldap.metric("kedge_ldap_checks") == before + 1


def test_wrong_passwords_are_delayed(slapd):
    server = kedge_server.Server("--login-delay-max", "1h")
    try:
        server.start()
        admin = Management(server.mgmt_port, kedge_server.USER, kedge_server.PASSWORD)
        admin.external_user("ada", "data_reader[default]")
        admin.do("POST", LDAP, slapd.settings())
        # The first delay is 100 ms, and doubles: soon one is longer than any test.
        statuses = []
        deadline.until(
            lambda: statuses.append(wire.login(server.kv_port, "ada", "wrong")) or admin.metric("kedge_logins_delayed") > 20,
            "wrong passwords cause delays",
        )
        assert statuses[:6] == [wire.AUTH_ERROR] * 6
        assert wire.TEMPORARY_FAILURE in statuses
    finally:
        server.remove()


def test_directory_that_hangs_delays_no_one_else(server, admin, slapd):
    silent = directory.Silent()
    try:
        admin.do("POST", LDAP, slapd.settings(port=str(silent.port)))
        with wire.Client(server.kv_port) as waiting:
            message = b"\0ada\0" + directory.PASSWORDS["ada"].encode()
            waiting.send(wire.SASL_AUTH, b"PLAIN", message)
            deadline.until(lambda: silent.accepted, "the server asks the directory")
            # All front-end threads and the queue of local password checks go on.
            admin.do("PUT", "/settings/rbac/users/local/new", {"password": "new secret", "roles": "data_reader[default]"})
            for _ in range(32):
                with wire.Client(server.kv_port) as client:
                    assert client.plain("new", "new secret") == wire.SUCCESS
                    assert client.select() == wire.SUCCESS
                    assert client.get("missing") == wire.NOT_FOUND
            silent.close()
            assert waiting.reply()[0] == wire.TEMPORARY_FAILURE
    finally:
        silent.close()


@pytest.mark.parametrize("encryption", ["StartTLSExtension", "TLS"])
def test_connections_to_the_directory_are_protected(server, ldap, slapd, encryption):
    port = slapd.tls_port if encryption == "TLS" else slapd.port
    secure = {"encryption": encryption, "port": str(port), "cacert": slapd.authority}
    ldap.do("POST", LDAP, secure)
    assert rights(server, "ada") == (False, True)
    # Another authority.
    ldap.do("POST", LDAP, {"cacert": server.certificate.read_text()})
    assert wire.login(server.kv_port, "ada", directory.PASSWORDS["ada"]) == wire.TEMPORARY_FAILURE
    tried = ldap.do("POST", f"{LDAP}/validate/connectivity", {}).json()
    assert tried["result"] == "error" and "127.0.0.1" in tried["reason"], tried
    ldap.do("POST", LDAP, {"serverCertValidation": "false"})
    assert rights(server, "ada") == (False, True)


def test_settings_are_tried_before_they_are_used(admin, slapd):
    def tried(what, **fields):
        return admin.do("POST", f"{LDAP}/validate/{what}", {**slapd.settings(), **fields}).json()

    assert tried("connectivity") == {"result": "success"}
    assert tried("connectivity", bindPass="wrong")["result"] == "error"
    password = directory.PASSWORDS["ada"]
    assert tried("authentication", authUser="ada", authPass=password) == {"result": "success"}
    assert tried("authentication", authUser="ada", authPass="wrong")["result"] == "error"
    assert tried("authentication", authUser="ada", authPass="")["result"] == "error"
    assert tried("groupsQuery", groupsQueryUser="ada") == {"result": "success", "groups": [directory.DEVS]}
    assert tried("groupsQuery", groupsQueryUser="ada", groupsQuery="ou=none,dc=x??one?(m=%D)")["groups"] == []
    assert admin.request("POST", f"{LDAP}/validate/other", {}).status == 404
    # Nothing was stored.
    assert admin.do("GET", LDAP).json()["hosts"] == []


def test_settings_survive_a_restart_and_show_no_password(server, ldap):
    for reply in [ldap.do("GET", LDAP), ldap.do("POST", LDAP, {"requestTimeout": "50000"})]:
        assert directory.SERVICE_PASSWORD not in reply.body
        assert reply.json()["bindPass"] == "**********"
    errors = ldap.request("POST", LDAP, {"port": "x", "nothing": "1"})
    assert errors.status == 400 and set(errors.json()["errors"]) == {"port", "nothing"}
    assert user(server, "bob").get(LDAP).status == 403
    assert server.terminate() == 0
    server.start()
    assert ldap.do("GET", LDAP).json()["requestTimeout"] == 50000
    assert rights(server, "ada") == (False, True)
    ldap.do("DELETE", LDAP)
    assert wire.login(server.kv_port, "ada", directory.PASSWORDS["ada"]) == wire.AUTH_ERROR


def test_official_client_logs_in_over_tls(server, ldap):
    ldap.do("POST", LDAP, {"nestedGroupsEnabled": "true"})
    authenticator = PasswordAuthenticator("ada", directory.PASSWORDS["ada"], cert_path=str(server.certificate))
    cluster = Cluster(server.connection_string, ClusterOptions(authenticator))
    try:
        cluster.wait_until_ready(timedelta(seconds=60))
        collection = cluster.bucket(kedge_server.BUCKET).default_collection()
        collection.upsert("external", {"by": "ada"})
        assert collection.get("external").content_as[dict] == {"by": "ada"}
    finally:
        cluster.close()
