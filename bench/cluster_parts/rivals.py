"""Durable writes from 500 connections, beside Redis with a replica and beside etcd."""

import json
import signal
import socket
import subprocess
import time

from harness import QUICK, ROOT, WORK, Process, free_port, fresh_dir, median, need, say, table, wait_for_port
from node import LOAD_S_MAX, load, size

from cluster_parts.nodes import VBUCKETS, Cluster

NAME, TITLE = "rivals", "Durable writes beside Redis with WAIT and beside etcd"
CONNECTIONS, ITEMS, VALUE_BYTES = 500, 100_000, 512
ROUNDS, SECONDS, WARMUP_S = (1, 1, 0.5) if QUICK else (5, 5, 0.5)
# Long enough that most of what is written meanwhile is moved from the log to the files, `apply_max_lag` being 30 s.
LONG_S = 90
# Connections that etcd's 500 clients share: the library multiplexes, and which is better depends on the machine.
ETCD_CONNECTIONS = [10] if QUICK else [500, 10]
# Its nodes may first have to agree on a leader.
ETCD_WARMUP_S = 2.5
# The levels that are measured on two nodes, and the `appendfsync` of the Redis that each is compared with: `majority`
# promises nothing about disks, so Redis syncs once a second beside it.
LEVELS = {
    "majority": ("majority", "everysec"),
    "persist_active": ("majority_and_persist_to_active", "always"),
    "persist": ("persist_to_majority", "always"),
}
BARS = [
    ("majority_500_throughput_vs_redis", ">=", 2.0, "x"),
    ("majority_500_p99_vs_redis", "<=", 1.0, "x"),
    ("persist_active_500_throughput_vs_redis", ">=", 1.0, "x"),
    ("persist_active_500_p99_vs_redis", "<=", 1.0, "x"),
    ("persist_500_throughput_vs_redis", ">=", 1.5, "x"),
    ("persist_500_p99_vs_redis", "<=", 0.8, "x"),
    ("persist_500_throughput_vs_etcd", ">=", 1.0, "x"),
    ("persist_500_p99_vs_etcd", "<=", 1.0, "x"),
]
LIMITS = {name: limit for name, _, limit, _ in BARS}


class Redis:
    """A master and one replica with the same `appendfsync`."""

    def __init__(self, fsync):
        program = need("redis-server", "redis-server")
        self.ports = [free_port(), free_port()]
        self.processes = []
        for at, port in enumerate(self.ports):
            name = f"redis-{at}"
            more = ["--replicaof", "127.0.0.1", self.ports[0]] if at else []
            self.processes.append(Process(name, [
                program, "--port", port, "--bind", "127.0.0.1", "--dir", fresh_dir(name), "--save", "", "--appendonly", "yes",
                "--appendfsync", fsync, "--auto-aof-rewrite-percentage", "0", "--maxclients", "10000",
                "--repl-timeout", "3600", "--repl-diskless-sync-delay", "0", *more,
            ]))
            wait_for_port(self.processes[at], port)
        self._wait_for_replica()

    def _wait_for_replica(self):
        with socket.create_connection(("127.0.0.1", self.ports[0]), 5) as connection:
            for _ in range(600):
                connection.sendall(b"INFO replication\r\n")
                if b"state=online" in connection.recv(4096):
                    return
                time.sleep(0.05)
        raise RuntimeError("the replica of redis did not come online")

    def run(self, seconds):
        return load(f"redis://127.0.0.1:{self.ports[0]}", "--wait-replicas", 1, *same(seconds))

    def stop(self):
        for process in self.processes:
            process.stop(signal.SIGKILL)


class Etcd:
    """Three nodes, or another number; a PUT is answered when a majority has synced it."""

    def __init__(self, connections=0, members=3):
        program = need("etcd", "etcd-server")
        self.connections, self.load = connections, WORK / "etcd_load"
        ports = [(free_port(), free_port()) for _ in range(members)]
        cluster = ",".join(f"m{at}=http://127.0.0.1:{peer}" for at, (_, peer) in enumerate(ports))
        self.endpoints = ",".join(f"127.0.0.1:{client}" for client, _ in ports)
        self.processes = []
        for at, (client, peer) in enumerate(ports):
            name = f"etcd-{at}"
            own, other = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            # All three and the generator share the processor: they must not take a late message for the leader's death.
            self.processes.append(Process(name, [
                program, "--name", f"m{at}", "--data-dir", fresh_dir(name), "--listen-client-urls", own,
                "--advertise-client-urls", own, "--listen-peer-urls", other, "--initial-advertise-peer-urls", other,
                "--initial-cluster", cluster, "--heartbeat-interval", 500, "--election-timeout", 5000,
                "--quota-backend-bytes", 8 << 30, "--logger", "zap", "--log-level", "error",
            ]))
        for process, (client, _) in zip(self.processes, ports):
            wait_for_port(process, client)

    def run(self, seconds):
        command = [
            self.load, "-endpoints", self.endpoints, "-connections", self.connections, "-clients-per-connection",
            CONNECTIONS // self.connections, "-num-items", ITEMS, "-size", VALUE_BYTES, "-duration",
            f"{seconds + ETCD_WARMUP_S}s", "-warmup", f"{ETCD_WARMUP_S}s",
        ]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LOAD_S_MAX)
        if done.returncode != 0:
            raise RuntimeError(f"etcd_load: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def stop(self):
        for process in self.processes:
            process.stop(signal.SIGKILL)


def build():
    go = need("go", "golang-go")
    subprocess.run([go, "build", "-o", WORK / "etcd_load", "."], cwd=ROOT / "bench" / "etcd_load", check=True)


class Kedge:
    """Nodes with a replica on each of them but one, written to with a durability level."""

    def __init__(self, nodes, level):
        self.cluster, self.level = Cluster(nodes, nodes - 1, vbuckets=VBUCKETS), level
        self.processes = [self.cluster.process]

    def run(self, seconds):
        return load(self.cluster.kv_url, "--durability", self.level, *same(seconds))

    def stop(self):
        self.cluster.stop()


def same(seconds):
    """What every run of the generator has."""
    return [
        "--num-items", ITEMS, "--num-threads", CONNECTIONS, *size(VALUE_BYTES), "--random-body", "--set-pct", 100,
        "--sequential", "--no-population", "--duration", seconds + WARMUP_S, "--warmup", WARMUP_S,
    ]


def kedge_name(nodes, level):
    return f"kedge, {nodes} nodes, {level}"


def redis_name(fsync):
    return f"redis, 2 nodes, {fsync} and WAIT 1"


def etcd_name(connections):
    return f"etcd, 3 nodes, {connections} connections"


def one(name, start, seconds):
    """A run of servers that were just started and run alone: frozen ones would have to catch up with their clocks."""
    server = start()
    try:
        cpu = sum(process.cpu_seconds() for process in server.processes)
        report = server.run(seconds)
        cpu = sum(process.cpu_seconds() for process in server.processes) - cpu
    finally:
        server.stop()
    if report["errors"]:
        say(f"  {name}: {report['errors_by_kind']}")
    report["server_cpu_us_per_op"] = round(cpu * 1e6 / max(report["ops"], 1), 3)
    return report


def measure():
    beside_redis = {}
    for level, fsync in LEVELS.values():
        beside_redis[kedge_name(2, level)] = lambda level=level: Kedge(2, level)
        beside_redis[redis_name(fsync)] = lambda fsync=fsync: Redis(fsync)
    cases = beside_redis | {kedge_name(3, "persist_to_majority"): lambda: Kedge(3, "persist_to_majority")}
    cases |= {etcd_name(count): lambda count=count: Etcd(count) for count in ETCD_CONNECTIONS}
    cases = list(cases.items())
    short, long = {}, {}
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        for name, start in cases[turn % len(cases):] + cases[:turn % len(cases)]:
            short.setdefault(name, []).append(one(name, start, SECONDS))
    for name, start in () if QUICK else beside_redis.items():
        say(f"{TITLE}: {LONG_S} s of {name}")
        long[name] = [one(name, start, LONG_S)]
    return {"short": short, "long": long}


def rows(samples):
    return [
        [
            name, f"{median(run['ops_per_s'] for run in runs):,.0f}",
            *(f"{median(run[field] for run in runs):,.0f}" for field in ("mean_us", "p50_us", "p99_us", "p999_us")),
            f"{median(run['server_cpu_us_per_op'] for run in runs):.1f}", sum(run["errors"] for run in runs),
        ]
        for name, runs in samples.items()
    ]


def report(measured, bars):
    samples = measured["short"]
    # The better of etcd's, in throughput and in latency.
    etcds = zip(*(samples[etcd_name(count)] for count in ETCD_CONNECTIONS))
    etcd = [
        {"ops_per_s": max(run["ops_per_s"] for run in runs), "p99_us": min(run["p99_us"] for run in runs)} for runs in etcds
    ]
    pairs = [
        (f"{name}_500_{{}}_vs_redis", samples[kedge_name(2, level)], samples[redis_name(fsync)])
        for name, (level, fsync) in LEVELS.items()
    ]
    pairs.append(("persist_500_{}_vs_etcd", samples[kedge_name(3, "persist_to_majority")], etcd))
    for pair, ours, theirs in pairs:
        name = pair.format("throughput")
        bars.at_least(name, median(a["ops_per_s"] / b["ops_per_s"] for a, b in zip(ours, theirs)), LIMITS[name], "x")
        name = pair.format("p99")
        bars.at_most(name, median(a["p99_us"] / b["p99_us"] for a, b in zip(ours, theirs)), LIMITS[name], "x")
    head = ["server", "writes/s", "mean us", "p50 us", "p99 us", "p99.9 us", "server CPU us/op", "errors"]
    text = (
        f"{CONNECTIONS} connections with one write in flight each, {VALUE_BYTES}-byte values, medians of {ROUNDS} rounds of "
        f"{SECONDS} s; all nodes are on this machine, and were just started. Redis with `everysec` answers when its replica has "
        f"received, as Kedge with `majority`; with `always` when its master has synced as well, as Kedge with "
        f"`majority_and_persist_to_active`; etcd when two of three nodes have synced, as Kedge on three nodes with "
        f"`persist_to_majority`; Kedge on two nodes with it when both have synced.\n\n"
        + table(head, rows(samples))
    )
    if measured["long"]:
        text += (
            f"\nOne run of {LONG_S} s each, in which Kedge moves what is older than 30 s from its log to the files of its "
            f"vBuckets:\n\n" + table(head, rows(measured["long"]))
        )
    return text
