"""The tests of pymemcache once more, over TLS."""

import ssl

import pytest
from pymemcache.client.base import Client

import kedge_server
from conftest import OTHER
from test_pymemcache import *  # noqa: F403

# These make their own connections, without TLS.
del test_flags_are_kept, test_login, test_quit_closes  # noqa: F821

pytestmark = pytest.mark.kedge


@pytest.fixture(scope="module")
def server():
    if OTHER:
        pytest.skip("the server is not Kedge")
    started = kedge_server.Server("--memcached-flush-all", tls=True)
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture(scope="module")
def address(server):
    return "127.0.0.1", server.memcached_tls_port


@pytest.fixture(scope="module")
def client(server, address):
    context = ssl.create_default_context(cafile=server.certificate)
    # Its names are checked, too: 127.0.0.1 is one.
    connected = Client(address, connect_timeout=60, timeout=60, default_noreply=False, tls_context=context)
    yield connected
    connected.close()
