import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sdk/python"))

import kedge_server  # noqa: E402

import directory  # noqa: E402
from management import Management  # noqa: E402


@pytest.fixture(scope="module")
def server():
    started = kedge_server.Server("--login-delay-max", "0s", tls=True)
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture(scope="session")
def slapd():
    started = directory.Slapd()
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture
def admin(server):
    """The administrator; afterwards nothing of external users is left."""
    admin = Management(server.mgmt_port, kedge_server.USER, kedge_server.PASSWORD)
    yield admin
    admin.reset()
