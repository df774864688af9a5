from datetime import timedelta

import pytest
from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.diagnostics import ClusterState, PingState, ServiceType
from couchbase.exceptions import (
    AuthenticationException,
    BucketNotFoundException,
    CouchbaseException,
    ServiceUnavailableException,
)
from couchbase.options import ClusterOptions, WaitUntilReadyOptions

import kedge_server


def test_cluster_and_bucket_become_ready(cluster, bucket):
    services = WaitUntilReadyOptions(service_types=[ServiceType.KeyValue])
    cluster.wait_until_ready(timedelta(seconds=60), services)
    assert cluster.diagnostics().state == ClusterState.Online


@pytest.mark.parametrize(
    ("user", "password"),
    [(kedge_server.USER, "wrong"), ("nobody", kedge_server.PASSWORD), ("nobody", "wrong")],
)
def test_wrong_credentials(server, user, password):
    with pytest.raises(AuthenticationException):
        Cluster(server.connection_string, ClusterOptions(PasswordAuthenticator(user, password)))


def test_missing_bucket(cluster):
    with pytest.raises(BucketNotFoundException):
        cluster.bucket("no-such-bucket").default_collection().get("key")


def test_ping_reaches_every_service(bucket):
    endpoints = bucket.ping().endpoints
    reports = endpoints[ServiceType.KeyValue]
    assert reports and all(report.state == PingState.OK for report in reports)


def test_services_that_are_not_there_fail_at_once(cluster):
    with pytest.raises(ServiceUnavailableException):
        cluster.query("SELECT 1").execute()


def test_named_collections_fail_cleanly(bucket):
    from couchbase.options import GetOptions

    with pytest.raises(CouchbaseException):
        bucket.scope("s").collection("c").get("key", GetOptions(timeout=timedelta(seconds=2)))
