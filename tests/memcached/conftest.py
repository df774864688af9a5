"""Memcached clients against Kedge's memcached port.

MEMCACHED_ADDRESS=HOST:PORT runs the suite against a server that is already there: with Debian's memcached it shows that
what the tests expect is what memcached does.
"""

import os
import pathlib
import sys
import uuid

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sdk" / "python"))

import kedge_server  # noqa: E402

OTHER = os.environ.get("MEMCACHED_ADDRESS")


def pytest_collection_modifyitems(items):
    if OTHER:
        for item in items:
            if item.get_closest_marker("kedge"):
                item.add_marker(pytest.mark.skip(reason="the server is not Kedge"))


@pytest.fixture(scope="session")
def server():
    if OTHER:
        yield None
        return
    started = kedge_server.Server("--memcached-flush-all")
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture(scope="session")
def address(server):
    if OTHER:
        host, port = OTHER.rsplit(":", 1)
        return host, int(port)
    return "127.0.0.1", server.memcached_port


@pytest.fixture
def key(request):
    name = "".join(c for c in request.node.name if c.isalnum())
    return f"{name[:60]}-{uuid.uuid4().hex[:12]}"
