"""The question that `kedge` asks at a terminal before it drops something. Only the refusal without a terminal was tested:
a question whose answer is ignored would have passed."""

import os
import pty
import subprocess
import uuid

import pytest

import deadline
import kedge_server


def command(server, *words):
    login = ["-U", server.connection_string, "-u", kedge_server.USER, "-P", kedge_server.PASSWORD]
    return [str(kedge_server.binary()), *words, *login]


def buckets(server):
    done = subprocess.run(command(server, "bucket", "list", "--json"), capture_output=True, text=True, check=True)
    return done.stdout


def answered(server, answer, *words):
    """The exit code of a command whose question is answered, and what it shows at the terminal."""
    terminal, its_end = pty.openpty()
    try:
        process = subprocess.Popen(command(server, *words), stdin=its_end, stdout=its_end, stderr=its_end)
        os.close(its_end)
        shown = b""
        while b"[y/N] " not in shown:
            shown += os.read(terminal, 4096)
        os.write(terminal, answer)
        while True:
            try:
                more = os.read(terminal, 4096)
            except OSError:  # The other end is closed.
                break
            if not more:
                break
            shown += more
        return process.wait(deadline.SECONDS), shown.decode()
    finally:
        os.close(terminal)


@pytest.fixture
def bucket_name(server):
    name = f"b-{uuid.uuid4().hex[:12]}"
    subprocess.run(command(server, "bucket", "create", name, "--quota", "100"), check=True)
    yield name
    subprocess.run(command(server, "bucket", "drop", name, "--yes"), check=False, capture_output=True)


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"yes please\n", b"\x04"], ids=["no", "empty", "unclear", "end"])
def test_a_bucket_stays_unless_the_answer_is_yes(server, bucket_name, answer):
    code, shown = answered(server, answer, "bucket", "drop", bucket_name)
    assert code == 1, shown
    assert f'"{bucket_name}"' in shown and "cannot be undone" in shown
    assert "not done: " in shown
    assert bucket_name in buckets(server)


@pytest.mark.parametrize("answer", [b"y\n", b"Yes\n"], ids=["y", "yes"])
def test_a_bucket_is_dropped_when_the_answer_is_yes(server, bucket_name, answer):
    code, shown = answered(server, answer, "bucket", "drop", bucket_name)
    assert code == 0, shown
    assert bucket_name not in buckets(server)
