"""`kedge cluster-run` that is measured: all nodes as one target."""

import functools
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import KEDGE, Process, free_port, fresh_dir, wait_for_port
from node import LOGIN
from parts import NotThere
from storage_parts.server import Server, need_command

from cluster_parts.wire import Connection

VBUCKETS = 1024
# The longest that Kedge allows.
FAILOVER_S_MAX = 120
READY = re.compile(r"ready kv=\S+:(\d+) mgmt=\S+:(\d+) .*node=(\S+) pid=(\d+)")


@functools.cache
def _help(*words):
    return subprocess.run([KEDGE, *words, "--help"], capture_output=True, text=True, check=True).stdout


def need_cluster_command(name):
    if not re.search(rf"^\s+{name}\b", _help("cluster"), re.MULTILINE):
        raise NotThere(f"no command kedge cluster {name}")


def need_cluster_run_flag(name):
    need_command("cluster-run")
    if not re.search(rf"^\s+--{name}\b", _help("cluster-run"), re.MULTILINE):
        raise NotThere(f"no flag --{name} of kedge cluster-run")


def need_automatic_failover(cluster):
    if cluster.nodes[0].ask("/settings/autoFailover") is None:
        raise NotThere("no /settings/autoFailover")


def command_of(pid):
    """The words with which a process was started."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]


def with_flags(words, **flags):
    """A command line with other values of some flags."""
    kept, words = [], iter(words)
    names = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    for word in words:
        if word in names:
            next(words)
        elif word.split("=", 1)[0] not in names:
            kept.append(word)
    return kept + [word for name, value in names.items() for word in (name, str(value))]


def first_line(process, begins, seconds):
    """Waits for the first line that a process prints, which must begin so."""
    readable, _, _ = select.select([process.popen.stdout], [], [], seconds)
    line = process.popen.stdout.readline().decode() if readable else ""
    if not line.startswith(begins):
        raise RuntimeError(f"{process.name} printed {line!r} instead of {begins!r} within {seconds} s; {process.log}")


def wait_until(what, holds, seconds):
    """Asks until it holds. A command that is refused meanwhile is tried again."""
    end = time.monotonic() + seconds
    while True:
        refusal = ""
        try:
            if holds():
                return
        except RuntimeError as refused:
            refusal = f": {refused}"
        if time.monotonic() > end:
            raise RuntimeError(f"after {seconds} s still not so: {what}{refusal}")
        time.sleep(0.05)


class Node(Server):
    """One node of a cluster, asked over its own ports."""

    def __init__(self, process, name, kv, mgmt, pid):
        self.process, self.name, self.pid, self.ports = process, name, int(pid), [int(kv), int(mgmt), 0]

    def command(self, *words, seconds=60):
        """Runs `kedge cluster` with these words, at this node; returns what it prints."""
        command = [KEDGE, "cluster", *words, "-U", f"http://127.0.0.1:{self.ports[1]}", *LOGIN]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        if done.returncode != 0:
            raise RuntimeError(f"kedge cluster {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


class Cluster:
    """`kedge cluster-run` with settings, given as words: `commit_log=False`."""

    def __init__(self, nodes, replicas, name="cluster", quota="4GiB", **settings):
        need_command("cluster-run")
        self.data_dir = fresh_dir(name)
        command = [
            KEDGE, "cluster-run", "--nodes", nodes, "--replicas", replicas, "--data-dir", self.data_dir, "--kv-port", 0,
            "--mgmt-port", 0, "--memcached-port", 0,
        ]
        settings = {"bucket_quota": quota, "log_level": "warn", **settings}
        for setting, value in settings.items():
            command += [f"--{setting.replace('_', '-')}", str(value).lower()]
        self.process = Process(name, command, stdout=subprocess.PIPE, has_children=True)
        self.nodes, self._started = [], []
        for line in self.process.popen.stdout:
            line = line.decode()
            if line.startswith("cluster ready "):
                break
            kv, mgmt, node_name, pid = READY.match(line).groups()
            self.nodes.append(Node(self.process, node_name, kv, mgmt, pid))
        else:
            sys.exit(self.process.complaint())
        self.nodes.sort(key=lambda node: node.name)

    @property
    def kv_url(self):
        return self.nodes[0].kv_url

    def timing(self, name):
        """A histogram of all nodes together: lists of lowest value, highest value, count."""
        counts = {}
        for node in self.nodes:
            for low, high, count in node.timing(name):
                counts[low, high] = counts.get((low, high), 0) + count
        return [[low, high, count] for (low, high), count in sorted(counts.items())]

    def outlast_freezes(self):
        """Gives nodes the longest time until a failover, for a part that freezes them while others are measured."""
        if self.nodes[0].ask("/settings/autoFailover") is not None:
            self.nodes[0].tell("/settings/autoFailover", enabled="true", timeout=FAILOVER_S_MAX)

    def wait_applied(self):
        for node in self.nodes:
            node.wait_applied()

    def chains(self):
        """The map that clients of the first node get, by key-value ports."""
        connection = Connection("127.0.0.1", self.nodes[0].ports[0])
        try:
            return connection.chains()
        finally:
            connection.close()

    def _start(self, words, name, kv, mgmt):
        process = Process(f"{self.data_dir.name}-{name}", words, stdout=subprocess.PIPE)
        self._started.append(process)
        return Node(process, name, kv, mgmt, process.pid)

    def add(self, name, seconds=60):
        """Starts one more node, as the last of `cluster-run` was started, and makes it a member."""
        ports = free_port(), free_port()
        words = with_flags(
            command_of(self.nodes[-1].pid), data_dir=self.data_dir / name, node_name=name, kv_port=ports[0],
            mgmt_port=ports[1],
        )
        node = self._start(words, name, *ports)
        wait_for_port(node.process, ports[1])
        # It may not have announced itself yet.
        wait_until(f"{name} is a member", lambda: self.nodes[0].command("add", name) is not None, seconds)
        first_line(node.process, "ready ", seconds)
        self.nodes.append(node)

    def restart(self, at, seconds=60):
        """Ends a node with SIGTERM and starts it as it was started."""
        node = self.nodes[at]
        words = command_of(node.pid)
        os.kill(node.pid, signal.SIGTERM)
        # Its parent collects it.
        wait_until(f"{node.name} has ended", lambda: not Path(f"/proc/{node.pid}").exists(), seconds)
        self.nodes[at] = self._start(words, node.name, *node.ports[:2])
        first_line(self.nodes[at].process, "ready ", seconds)

    def wait_whole(self, seconds, node):
        """Until all nodes are members with all copies, as `kedge cluster status` at a node sees it. A node that the drain
        has failed over is recovered."""
        recovered = set()
        def is_whole():
            status = node.ask("/kedge/cluster/status")
            for each in status["nodes"] if status else ():
                if each["failedOver"] and each["up"] and each["name"] not in recovered:
                    node.command("recover", each["name"])
                    recovered.add(each["name"])
            done = lambda bucket: bucket["missingCopies"] == bucket["withoutActive"] == bucket["moving"] == 0
            return bool(status) and all(each["up"] and not each["failedOver"] for each in status["nodes"]) and all(
                map(done, status["buckets"])
            )
        wait_until("the cluster is whole", is_whole, seconds)

    def stop(self):
        for process in self._started:
            process.stop()
        return self.process.stop()


def between(before, after):
    """What a histogram got between two looks."""
    counts = {(low, high): count for low, high, count in after}
    for low, high, count in before:
        counts[low, high] = counts.get((low, high), 0) - count
    return [(low, high, count) for (low, high), count in sorted(counts.items()) if count]


def drawn(name, buckets, rows_max=24, width_max=44):
    """A histogram as `kedge timings` prints it; neighbours are put together until there are few rows."""
    for shift in (4, 3, 2, 1, 0):
        rows = []
        for low, high, count in buckets:
            if rows and high <= rows[-1][0] + (rows[-1][0] >> shift):
                rows[-1][1:] = [high, rows[-1][2] + count]
            else:
                rows.append([low, high, count])
        if len(rows) <= rows_max:
            break
    total, most = sum(row[2] for row in rows), max((row[2] for row in rows), default=0)
    width, count_width = len(str(rows[-1][1] if rows else 0)), len(str(most))
    out, so_far = [f'The following data is collected for "{name}"'], 0
    for low, high, count in rows:
        so_far += count
        bar = "#" * -(-count * width_max // most)
        out.append(f"[{low:>{width}} - {high:>{width}}]us ({so_far * 100 / total:8.4f}%) {count:>{count_width}} | {bar}")
    return "\n".join([*out, f"Total: {total} operations"])
