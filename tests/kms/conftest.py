import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "sdk/python"))
sys.path.append(str(TESTS / "users"))

import aws  # noqa: E402
import kmip_server  # noqa: E402
import node  # noqa: E402


@pytest.fixture(scope="session")
def service():
    """AWS KMS."""
    started = aws.Service()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kmip(tmp_path_factory):
    """A KMIP server."""
    started = kmip_server.KmipServer(tmp_path_factory.mktemp("kmip"))
    started.start()
    yield started
    started.stop()


@pytest.fixture
def kedge():
    """Makes servers with a data directory of their own."""
    made = []

    def make(**environment):
        made.append(node.Node(environment))
        return made[-1]

    yield make
    for server in made:
        server.remove()
