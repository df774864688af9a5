"""The samples in Python of README.md and of the tutorial, run as they stand there but for the address. Samples without
imports once stood in the first of them."""

import os
import subprocess
import sys

import pytest

import kedge_cluster
import kedge_server


def block(document, heading, language):
    """The first block of a language behind a heading of a document."""
    text = (kedge_server.REPOSITORY / document).read_text()
    return text.split(heading, 1)[1].split(f"```{language}\n", 1)[1].split("```", 1)[0]


def run(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def first_lines(server):
    address = '"couchbase://127.0.0.1"'
    program = block("README.md", "**Python**", "python")
    assert program.count(address) == 1
    return program.replace(address, repr(server.connection_string))


def test_the_sample_in_the_readme_runs(server):
    assert run(first_lines(server)) == "{'from': 'Python'}\n"


def test_the_durable_write_in_the_readme_runs(server):
    """It continues the first lines."""
    durable = block("README.md", "A write that must be durable", "python")
    program = first_lines(server) + durable + 'print(collection.get("order").content_as[dict])\n'
    assert run(program) == "{'from': 'Python'}\n{'paid': True}\n"


TUTORIAL = "docs/tutorial/first-cluster.md"


@pytest.fixture
def tutorial_cluster():
    started = kedge_cluster.Cluster(nodes=3, replicas=1)
    yield started
    started.remove()


def test_the_samples_in_the_tutorial_run(tutorial_cluster):
    address = '"couchbase://127.0.0.1:12000"'
    program = block(TUTORIAL, "## 3.", "python")
    assert program.count(address) == 1
    assert run(program.replace(address, repr(tutorial_cluster.connection_string))) == "{'paid': False}\n"

    # The commands of the same section, with the variables that the section before it sets.
    assert "export KEDGE_URL=couchbase://127.0.0.1:12000/default" in block(TUTORIAL, "Leave it running", "")
    environment = {
        **os.environ,
        "PATH": f"{kedge_server.binary().resolve().parent}:{os.environ['PATH']}",
        "KEDGE_URL": f"couchbase://127.0.0.1:{tutorial_cluster.nodes[0][0]}/default",
    }
    for heading in ("`kedge load` writes documents too:", "Look at what the nodes have:"):
        script = block(TUTORIAL, heading, "")
        done = subprocess.run(
            ["sh", "-e", "-c", script], env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
