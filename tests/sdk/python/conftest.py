import uuid
from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.diagnostics import PingState, ServiceType
from couchbase.options import ClusterOptions, ClusterTimeoutOptions, PingOptions

import deadline
import kedge_server


def trust(server):
    """What a client needs to trust the server, if that has TLS."""
    certificate = getattr(server, "certificate", None)
    return {"cert_path": str(certificate)} if certificate else {}


def connect(server, transactions=None, **timeouts):
    """Connects; `transactions` is the configuration of transactions, if it is not the SDK's."""
    options = ClusterOptions(
        PasswordAuthenticator(kedge_server.USER, kedge_server.PASSWORD, **trust(server)),
        timeout_options=ClusterTimeoutOptions(
            bootstrap_timeout=timedelta(seconds=60),
            kv_timeout=timedelta(seconds=60),
            kv_durable_timeout=timedelta(seconds=60),
            **timeouts,
        ),
        **({"transaction_config": transactions} if transactions else {}),
    )
    return Cluster(server.connection_string, options)


def open_bucket(cluster, nodes):
    """The bucket, when each of so many nodes has answered: the SDK loses now and then what it is asked for in the moment
    in which it connects to another node."""
    cluster.wait_until_ready(timedelta(seconds=60))
    bucket = cluster.bucket(kedge_server.BUCKET)

    def all_answer():
        ends = bucket.ping(PingOptions(service_types=[ServiceType.KeyValue])).endpoints[ServiceType.KeyValue]
        return len(ends) == nodes and all(end.state == PingState.OK for end in ends)

    deadline.until(all_answer, f"{nodes} nodes answer")
    return bucket


@pytest.fixture(scope="session")
def server():
    started = kedge_server.Server()
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture
def own_server():
    """A server that only one test uses, so that it may be ended."""
    started = kedge_server.Server()
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture(scope="session")
def cluster(server):
    connected = connect(server)
    connected.wait_until_ready(timedelta(seconds=60))
    yield connected
    connected.close()


@pytest.fixture(scope="session")
def bucket(cluster):
    return cluster.bucket(kedge_server.BUCKET)


@pytest.fixture(scope="session")
def collection(bucket):
    return bucket.default_collection()


@pytest.fixture
def key(request):
    return f"{request.node.name}-{uuid.uuid4().hex}"
