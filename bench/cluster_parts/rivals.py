"""Durable writes from 500 connections, beside Redis with a replica and beside etcd."""

import json
import signal
import socket
import subprocess
import time

from harness import (
    QUICK, ROOT, WORK, Process, free_port, fresh_dir, median, need, only, say, table, wait_for_port,
)
from node import LOAD_S_MAX, load, size

from cluster_parts.nodes import VBUCKETS, Cluster

NAME, TITLE = "rivals", "Durable writes beside Redis with WAIT and beside etcd"
CONNECTIONS, ITEMS, VALUE_BYTES = 500, 100_000, 512
ROUNDS, SECONDS, WARMUP_S = (1, 2, 0.5) if QUICK else (5, 5, 0.5)
# Connections that etcd's 500 clients share: the library multiplexes, and which is better depends on the machine.
ETCD_CONNECTIONS = [500, 10]
# After they were frozen its nodes may first have to agree on a leader.
ETCD_WARMUP_S = 2.5
TWO_NODES = {"majority": "majority", "persist": "persist_to_majority", "persist to active": "majority_and_persist_to_active"}
BARS = [
    ("majority_500_throughput_vs_redis", ">=", 1.0, "x"),
    ("majority_500_p99_vs_redis", "<=", 1.0, "x"),
    ("persist_500_throughput_vs_redis", ">=", 1.0, "x"),
    ("persist_500_p99_vs_redis", "<=", 1.0, "x"),
    ("persist_500_throughput_vs_etcd", ">=", 1.0, "x"),
    ("persist_500_p99_vs_etcd", "<=", 1.0, "x"),
]


class Redis:
    """A master and one replica, both with every write synced."""

    def __init__(self):
        program = need("redis-server", "redis-server")
        self.ports = [free_port(), free_port()]
        self.processes = []
        for at, port in enumerate(self.ports):
            name = f"redis-{at}"
            more = ["--replicaof", "127.0.0.1", self.ports[0]] if at else []
            self.processes.append(Process(name, [
                program, "--port", port, "--bind", "127.0.0.1", "--dir", fresh_dir(name), "--save", "", "--appendonly", "yes",
                "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0", "--maxclients", "10000",
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

    def run(self, count):
        return load(
            f"redis://127.0.0.1:{self.ports[0]}", "--wait-replicas", 1, *same(count),
        )

    def stop(self):
        for process in self.processes:
            process.stop(signal.SIGKILL)


class Etcd:
    """Three nodes; a PUT is answered when two have synced it."""

    def __init__(self):
        program = need("etcd", "etcd-server")
        self.load = WORK / "etcd_load"
        ports = [(free_port(), free_port()) for _ in range(3)]
        members = ",".join(f"m{at}=http://127.0.0.1:{peer}" for at, (_, peer) in enumerate(ports))
        self.endpoints = ",".join(f"127.0.0.1:{client}" for client, _ in ports)
        self.processes = []
        for at, (client, peer) in enumerate(ports):
            name = f"etcd-{at}"
            own, other = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
            # While others are measured all three are frozen: they must not take that for the death of the leader.
            self.processes.append(Process(name, [
                program, "--name", f"m{at}", "--data-dir", fresh_dir(name), "--listen-client-urls", own,
                "--advertise-client-urls", own, "--listen-peer-urls", other, "--initial-advertise-peer-urls", other,
                "--initial-cluster", members, "--heartbeat-interval", 500, "--election-timeout", 5000,
                "--quota-backend-bytes", 8 << 30, "--logger", "zap", "--log-level", "error",
            ]))
        for process, (client, _) in zip(self.processes, ports):
            wait_for_port(process, client)

    def run(self, connections):
        command = [
            self.load, "-endpoints", self.endpoints, "-connections", connections, "-clients-per-connection",
            CONNECTIONS // connections, "-num-items", ITEMS, "-size", VALUE_BYTES, "-duration", f"{SECONDS + ETCD_WARMUP_S}s",
            "-warmup", f"{ETCD_WARMUP_S}s",
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


def same(count=CONNECTIONS):
    """What every run of the generator has."""
    return [
        "--num-items", ITEMS, "--num-threads", count, *size(VALUE_BYTES), "--random-body", "--set-pct", 100, "--sequential",
        "--no-population", "--duration", SECONDS + WARMUP_S, "--warmup", WARMUP_S,
    ]


def targets():
    """Servers with what they are asked: name, processes, run."""
    two, three, redis, etcd = Cluster(2, 1, "two", vbuckets=VBUCKETS), Cluster(3, 2, "three", vbuckets=VBUCKETS), Redis(), Etcd()
    def kedge(cluster, level):
        return lambda: load(cluster.kv_url, "--durability", level, *same())
    cases = [(f"kedge, 2 nodes, {level}", [two.process], kedge(two, level)) for level in TWO_NODES.values()]
    cases += [
        ("kedge, 3 nodes, persist_to_majority", [three.process], kedge(three, "persist_to_majority")),
        ("redis, 2 nodes, always and WAIT 1", redis.processes, lambda: redis.run(CONNECTIONS)),
    ]
    for count in ETCD_CONNECTIONS:
        cases.append((f"etcd, 3 nodes, {count} connections", etcd.processes, lambda count=count: etcd.run(count)))
    return cases, [two, three, redis, etcd]


def measure():
    samples = {}
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        cases, servers = targets()
        for name, processes, run in cases[turn % len(cases):] + cases[:turn % len(cases)]:
            only(*processes)
            cpu = sum(process.cpu_seconds() for process in processes)
            report = run()
            if report["errors"]:
                say(f"  {name}: {report['errors_by_kind']}")
            cpu = sum(process.cpu_seconds() for process in processes) - cpu
            report["server_cpu_us_per_op"] = round(cpu * 1e6 / max(report["ops"], 1), 3)
            samples.setdefault(name, []).append(report)
        for server in servers:
            server.stop()
    return samples


def report(samples, bars):
    rows = [
        [
            name, f"{median(run['ops_per_s'] for run in runs):,.0f}",
            *(f"{median(run[field] for run in runs):,.0f}" for field in ("mean_us", "p50_us", "p99_us", "p999_us")),
            f"{median(run['server_cpu_us_per_op'] for run in runs):.1f}", sum(run["errors"] for run in runs),
        ]
        for name, runs in samples.items()
    ]
    redis = samples["redis, 2 nodes, always and WAIT 1"]
    # The better of etcd's, in throughput and in latency.
    etcds = list(zip(*(samples[f"etcd, 3 nodes, {count} connections"] for count in ETCD_CONNECTIONS)))
    etcd = [
        {"ops_per_s": max(run["ops_per_s"] for run in runs), "p99_us": min(run["p99_us"] for run in runs)} for runs in etcds
    ]
    for name, ours, theirs in (
        ("majority_500_{}_vs_redis", "kedge, 2 nodes, majority", redis),
        ("persist_500_{}_vs_redis", "kedge, 2 nodes, persist_to_majority", redis),
        ("persist_500_{}_vs_etcd", "kedge, 3 nodes, persist_to_majority", etcd),
    ):
        pairs = list(zip(samples[ours], theirs))
        bars.at_least(name.format("throughput"), median(a["ops_per_s"] / b["ops_per_s"] for a, b in pairs), 1.0, "x")
        bars.at_most(name.format("p99"), median(a["p99_us"] / b["p99_us"] for a, b in pairs), 1.0, "x")
    head = ["server", "writes/s", "mean us", "p50 us", "p99 us", "p99.9 us", "server CPU us/op", "errors"]
    return (
        f"{CONNECTIONS} connections with one write in flight each, {VALUE_BYTES}-byte values, medians of {ROUNDS} rounds of "
        f"{SECONDS} s; all nodes are on this machine. Redis answers when its master has synced and its replica has "
        f"received; etcd when two of three nodes have synced, as Kedge on three nodes with `persist_to_majority`; Kedge on two nodes "
        f"with it when both have synced.\n\n" + table(head, rows)
    )
