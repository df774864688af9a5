"""`kedge cluster-run` that is measured: all nodes as one target."""

import re
import subprocess
import sys

from harness import KEDGE, Process, fresh_dir
from storage_parts.server import Server, need_command

VBUCKETS = 1024
READY = re.compile(r"ready kv=\S+:(\d+) mgmt=\S+:(\d+) .*node=(\S+) pid=(\d+)")


class Node(Server):
    """One node of a cluster, asked over its own ports."""

    def __init__(self, cluster, kv, mgmt, name, pid):
        self.process, self.name, self.pid, self.ports = cluster.process, name, int(pid), [int(kv), int(mgmt), 0]


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
        self.nodes = []
        for line in self.process.popen.stdout:
            line = line.decode()
            if line.startswith("cluster ready "):
                break
            self.nodes.append(Node(self, *READY.match(line).groups()))
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

    def wait_applied(self):
        for node in self.nodes:
            node.wait_applied()

    def stop(self):
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
