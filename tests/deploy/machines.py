"""Three machines as docs/guides/three-machines.md makes them: certificates, members of etcd with users, nodes.

The machines are addresses of loopback, and the files of the guide are below a directory of the test.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
import urllib.error
import urllib.request

from conftest import KEDGE, REPOSITORY, run

GUIDE = REPOSITORY / "docs" / "guides" / "three-machines.md"
MACHINES = [1, 2, 3]
# In place of 10.0.0: the server of .ci/run has the default ports of 127.0.0.1.
NETWORK = "127.0.41"
# Far above what anything takes.
PATIENCE_S = 60
# The password of the user `kedge` of etcd.
PASSWORD_OF_ETCD = "the password of kedge"


def blocks(language):
    """The code blocks of the guide in this language, as they stand in the page."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", GUIDE.read_text(), re.M | re.S)
    return [textwrap.dedent(text) for _, text in found]


def block(language, words):
    """The one block with these words."""
    [found] = [text for text in blocks(language) if words in text]
    return found


def readiness(address):
    """What a probe of a node is told: "ready", or the reason why it is not."""
    try:
        with urllib.request.urlopen(f"http://{address}:8091/kedge/ready", timeout=5) as reply:
            assert json.load(reply) == {"ready": True}
            return "ready"
    except urllib.error.HTTPError as error:
        return json.load(error)["reason"]
    except OSError as error:
        return str(error)


class Machines:
    """What the guide makes, below one directory."""

    def __init__(self, root):
        self.root = root
        self.processes = {}

    def here(self, text, number=1):
        """The text with the addresses and paths of the test, for the machine with that number."""
        for path in ("/etc/etcd", "/etc/kedge", "/var/lib/etcd"):
            text = text.replace(path, str(self.directory(number)) + path)
        if number != 1:
            # "with their own name and address": all but the lists of members.
            lines = text.splitlines()
            members = r"ETCD_INITIAL_CLUSTER=| *--initial-cluster=|coordinator = |http_allowed_hosts"
            own = [line for line in lines if not re.match(members, line)]
            for line in own:
                lines[lines.index(line)] = line.replace("10.0.0.1", f"10.0.0.{number}").replace("db1", f"db{number}")
            text = "\n".join(lines) + "\n"
        return text.replace("10.0.0.", f"{NETWORK}.")

    def directory(self, number):
        made = self.root / f"machine{number}"
        made.mkdir(exist_ok=True)
        return made

    def shell(self, words):
        done = run("sh", "-ec", self.here(block("sh", words)), cwd=self.root)
        assert done.returncode == 0, done.stderr

    def start(self, name, words, environment=None):
        log = self.root / f"{name}.log"
        with log.open("a") as output:
            started = subprocess.Popen(
                words, stdout=output, stderr=output, env={"PATH": os.environ["PATH"], **(environment or {})}
            )
        self.processes[name] = started
        return log

    def begin_member(self, number, state):
        """Starts a member of etcd as its unit does."""
        place = self.directory(number) / "etc/etcd"
        place.mkdir(parents=True)
        for source, target in (("ca.crt",) * 2, (f"db{number}.crt", "member.crt"), (f"db{number}.key", "member.key")):
            (place / target).write_bytes((self.root / source).read_bytes())
        (self.directory(number) / "var/lib/etcd").mkdir(parents=True)
        self.start_member(number, state)

    def start_member(self, number, state):
        lines = self.here(block("sh", "ETCD_INITIAL_CLUSTER="), number).splitlines()
        settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        self.start(f"etcd{number}", ["etcd"], {**settings, "ETCD_INITIAL_CLUSTER_STATE": state})

    def end(self, name):
        self.processes[name].kill()
        self.processes.pop(name).wait()

    def lose(self, number):
        """Ends what runs on a machine, with all its files."""
        for name in (f"node{number}", f"etcd{number}"):
            self.end(name)
        shutil.rmtree(self.directory(number))

    def restore_member(self, number):
        """Moves the data of a member that does not run away, and makes new data of the snapshot."""
        data = self.directory(number) / "var/lib/etcd/kedge"
        data.rename(data.with_suffix(".lost"))
        done = run("sh", "-ec", self.here(block("sh", "etcdctl snapshot restore"), number), cwd=self.root)
        assert done.returncode == 0, done.stderr

    def begin_etcd(self):
        self.shell("openssl req")
        for number in MACHINES:
            self.begin_member(number, "new")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            health = self.here(block("sh", "etcdctl user add")).split("etcdctl user")[0]
            done = run("sh", "-ec", health, cwd=self.root)
            if done.returncode == 0:
                break
            assert time.monotonic() < deadline, done.stderr
        self.shell("etcdctl user add")

    def begin_node(self, number):
        """Starts a node as the unit does."""
        etcd = self.directory(number) / "etc/kedge/etcd"
        etcd.mkdir(parents=True)
        for name in ("ca.crt", "client.crt", "client.key"):
            (etcd / name).write_bytes((self.root / name).read_bytes())
        (etcd / "password").write_text(PASSWORD_OF_ETCD + "\n")
        [text] = [text for text in blocks("toml") if "node_name" in text]
        file = self.directory(number) / "etc/kedge/kedge.toml"
        file.write_text(self.here(text, number))
        data = self.directory(number) / "var/lib/kedge"
        return self.start(f"node{number}", [KEDGE, "serve", "--config", file, "--data-dir", data, "--vbuckets", "16"])

    def becomes(self, name, address, expected):
        """Waits until a probe of a node is told this."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := readiness(address)) != expected:
            log = self.root / f"{name}.log"
            assert time.monotonic() < deadline, f"{name}: {found}\n{log.read_text()}"
            time.sleep(0.1)

    def stop(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            process.wait(timeout=PATIENCE_S)
