"""The tests of documents, sub-documents and durability once more, over TLS; and certificates of clients and servers."""

from datetime import timedelta

import pytest
from couchbase.auth import CertificateAuthenticator, PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.exceptions import CouchbaseException
from couchbase.options import ClusterOptions, ClusterTimeoutOptions

import kedge_server
from conftest import connect
from test_documents import *  # noqa: F403
from test_durability import *  # noqa: F403
from test_subdocument import *  # noqa: F403


@pytest.fixture(scope="module")
def server():
    started = kedge_server.Server(tls=True)
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture(scope="module")
def cluster(server):
    connected = connect(server)
    connected.wait_until_ready(timedelta(seconds=60))
    yield connected
    connected.close()


@pytest.fixture(scope="module")
def bucket(cluster):
    return cluster.bucket(kedge_server.BUCKET)


@pytest.fixture(scope="module")
def collection(bucket):
    return bucket.default_collection()


def options(login, seconds=60):
    limit = timedelta(seconds=seconds)
    timeouts = ClusterTimeoutOptions(bootstrap_timeout=limit, kv_timeout=timedelta(seconds=60))
    return ClusterOptions(login, timeout_options=timeouts)


def use(server, login):
    """Connects, stores and reads: one document, and many at a time."""
    cluster = Cluster(server.connection_string, options(login))
    try:
        cluster.wait_until_ready(timedelta(seconds=60))
        collection = cluster.bucket(kedge_server.BUCKET).default_collection()
        collection.upsert("over-tls", {"a": 1})
        assert collection.get("over-tls").content_as[dict] == {"a": 1}
        many = {f"over-tls-{n}": {"n": n} for n in range(1_000)}
        assert collection.upsert_multi(many).all_ok
        assert collection.get_multi(list(many)).all_ok
    finally:
        cluster.close()


def refused(server, login):
    with pytest.raises(CouchbaseException):
        Cluster(server.connection_string, options(login, seconds=5)).wait_until_ready(timedelta(seconds=5))


def by_password(ca):
    return PasswordAuthenticator(kedge_server.USER, kedge_server.PASSWORD, cert_path=str(ca))


def test_untrusted_certificate_is_refused_by_the_client(server):
    other = kedge_server.Server(tls=True)
    try:
        refused(server, by_password(other.certificate))
    finally:
        other.remove()


def test_client_trusts_the_ca_of_tls_auto():
    auto = kedge_server.Server(tls="auto")
    try:
        auto.start()
        use(auto, by_password(auto.certificate))
    finally:
        auto.remove()


def test_client_certificate_logs_in():
    mandatory = kedge_server.Server("--client-certs", "mandatory", tls=True)
    try:
        mandatory.start()
        certificate, key = mandatory.client_certificate()
        login = CertificateAuthenticator(
            cert_path=str(certificate), key_path=str(key), trust_store_path=str(mandatory.certificate)
        )
        use(mandatory, login)
        refused(mandatory, by_password(mandatory.certificate))
    finally:
        mandatory.remove()
