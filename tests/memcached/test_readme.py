"""The sample for a memcached client of README.md, run as it stands there but for the address."""

import subprocess
import sys

import kedge_server


def test_the_sample_in_the_readme_runs(address):
    text = (kedge_server.REPOSITORY / "README.md").read_text()
    program = text.split("**A memcached client**", 1)[1].split("```python\n", 1)[1].split("```", 1)[0]
    default = '("127.0.0.1", 11211)'
    assert program.count(default) == 1
    command = [sys.executable, "-c", program.replace(default, repr(address))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "b'memcached'\n"), done.stderr
