"""Debian's libmemcached-tools: memccapable's own tests, one by one, and the copying tools."""

import os
import shutil
import subprocess

import pytest

# In CI a missing tool is a failure, not a skip.
pytestmark = pytest.mark.skipif(
    shutil.which("memccapable") is None and os.environ.get("CI") != "true",
    reason="memccapable is missing: install libmemcached-tools",
)


def run(*command):
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("protocol", ["-a", "-b"], ids=["ascii", "binary"])
def test_memccapable(address, protocol):
    host, port = address
    # Line by line, so that the results, some on standard error, stand behind the names.
    code, output = run("stdbuf", "-o0", "memccapable", "-h", host, "-p", str(port), "-t", "10", "-v", protocol)
    print(output)
    assert output.count("[pass]") > 20, output
    assert (code, output.count("[FAIL]")) == (0, 0), output


def test_copy_in_and_out(address, tmp_path, key):
    servers = "--servers=%s:%d" % address
    source, target = tmp_path / key, tmp_path / "out"
    source.write_bytes(bytes(range(256)) * 100)
    for binary in ([], ["--binary"]):
        assert run("memccp", servers, *binary, str(source)) == (0, "")
        assert run("memccat", servers, *binary, f"--file={target}", key)[0] == 0
        assert target.read_bytes() == source.read_bytes()
        assert run("memcexist", servers, *binary, key)[0] == 0
        assert run("memctouch", servers, *binary, "--expire=100", key)[0] == 0
        assert run("memcrm", servers, *binary, key)[0] == 0
        assert run("memcexist", servers, *binary, key)[0] != 0
    assert run("memcping", servers)[0] == 0
    code, output = run("memcstat", servers)
    assert code == 0 and "curr_items" in output
