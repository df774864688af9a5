"""The tests of documents, sub-documents, durability and connections once more, over TLS."""

from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
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


def test_untrusted_certificate_is_refused_by_the_client(server):
    other = kedge_server.Server(tls=True)
    try:
        other.start()
        options = ClusterOptions(
            PasswordAuthenticator(kedge_server.USER, kedge_server.PASSWORD, cert_path=str(other.certificate)),
            timeout_options=ClusterTimeoutOptions(bootstrap_timeout=timedelta(seconds=5)),
        )
        with pytest.raises(CouchbaseException):
            Cluster(server.connection_string, options).wait_until_ready(timedelta(seconds=5))
    finally:
        other.remove()
