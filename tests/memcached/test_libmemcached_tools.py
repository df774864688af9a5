"""Debian's libmemcached-tools: memccapable's own tests, one by one, and the copying tools."""

import os
import re
import shutil
import subprocess

import pytest

# In CI a missing tool is a failure, not a skip.
pytestmark = pytest.mark.skipif(
    shutil.which("memccapable") is None and os.environ.get("CI") != "true",
    reason="memccapable is missing: install libmemcached-tools",
)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("protocol", ["-a", "-b"], ids=["ascii", "binary"])
def test_memccapable(address, protocol):
    host, port = address
    code, output = run("memccapable", "-h", host, "-p", str(port), "-t", "10", protocol)
    print(output)
    results = re.findall(r"^(\w[\w ]*?)\s*\[(\w+)\]", output, re.MULTILINE)
    failed = [name for name, result in results if result.lower() != "pass"]
    assert len(results) > 10, output
    assert (code, failed) == (0, []), output


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
