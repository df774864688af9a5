"""Paths and tools of the tests of deploy/."""

import os
import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HERE = REPOSITORY / "tests" / "deploy"
CHART = REPOSITORY / "deploy" / "helm" / "kedge"
HELM = REPOSITORY / ".cache" / "deploy" / "helm"
KEDGE = pathlib.Path(os.environ.get("KEDGE_BIN", REPOSITORY / "target" / "debug" / "kedge"))
# Of a run that changes the rendered files instead of comparing them.
UPDATES = os.environ.get("KEDGE_UPDATE_GOLDEN") == "1"


def run(*words, **options):
    """The finished process, with its output as text."""
    words = [str(word) for word in words]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, **options)


def template(values, *options):
    """The chart as `helm install shop` in the namespace prod would render it."""
    return run(HELM, "template", "shop", CHART, "--namespace", "prod", "--values", values, *options)


@pytest.fixture(scope="session")
def machines(tmp_path_factory):
    """Three members of etcd."""
    from machines import Machines

    made = Machines(tmp_path_factory.mktemp("machines"))
    try:
        made.begin_etcd()
        yield made
    finally:
        made.stop()
