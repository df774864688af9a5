"""The first lines in Python of README.md, run as they stand there. Samples without imports once stood in it."""

import subprocess
import sys

import kedge_server


def sample(heading):
    """The first Python block behind a heading of README.md."""
    text = (kedge_server.REPOSITORY / "README.md").read_text()
    return text.split(heading, 1)[1].split("```python\n", 1)[1].split("```", 1)[0]


def test_the_sample_in_the_readme_runs(server):
    program = sample("**Python**").replace("couchbase://127.0.0.1", server.connection_string)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "{'from': 'Python'}\n"), done.stderr
