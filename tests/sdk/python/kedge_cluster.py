"""Starts `kedge cluster-run` for tests, kills nodes of it and fails them over."""

import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading

from kedge_server import BUCKET, PASSWORD, READY_SECONDS, STOP_SECONDS, USER, binary

_READY = re.compile(r"ready kv=\S+:(\d+) mgmt=\S+:(\d+) .*node=n_(\d+) pid=(\d+)")


class Cluster:
    """Nodes n_0, n_1 and so on, on free ports, with one data directory for all."""

    def __init__(self, nodes, replicas):
        self._directory = pathlib.Path(tempfile.mkdtemp(prefix="kedge-test-"))
        command = [
            str(binary()), "cluster-run", "--nodes", str(nodes), "--replicas", str(replicas),
            "--data-dir", str(self._directory / "data"), "--kv-port", "0", "--mgmt-port", "0",
            "--bucket", BUCKET, "--user", USER, "--password", PASSWORD, "--vbuckets", "64",
        ]
        with open(self._directory / "stderr", "wb") as stderr:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        self._lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        # By number: KV port, management port, process.
        self.nodes = {}
        while match := _READY.match(self._line()):
            kv, mgmt, number, pid = map(int, match.groups())
            self.nodes[number] = (kv, mgmt, pid)

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def _line(self):
        line = self._lines.get(timeout=READY_SECONDS)
        if not line:
            raise RuntimeError(f"the cluster did not become ready:\n{self.stderr()}")
        return line

    def stderr(self):
        return (self._directory / "stderr").read_text(errors="replace")

    @property
    def connection_string(self):
        return "couchbase://" + ",".join(f"127.0.0.1:{kv}" for kv, _, _ in self.nodes.values())

    def kill(self, node):
        """SIGKILL: no goodbye, nothing is flushed."""
        os.kill(self.nodes[node][2], signal.SIGKILL)

    def fail_over(self, node):
        """Promotes the replicas of a node that is down; asks the first one."""
        command = [
            str(binary()), "cluster", "failover", f"n_{node}", "-U", f"http://127.0.0.1:{self.nodes[0][1]}",
            "-u", USER, "-P", PASSWORD,
        ]
        subprocess.run(command, check=True, timeout=STOP_SECONDS)

    def remove(self):
        """Ends all nodes and removes their data."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
