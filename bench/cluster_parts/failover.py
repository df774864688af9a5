"""From `kedge cluster failover` to the first write that is accepted."""

import os
import signal
import threading
import time

from harness import QUICK, median, only, say, table
from node import load, size

from cluster_parts.nodes import VBUCKETS, Cluster, need_automatic_failover
from cluster_parts.wire import MAJORITY, NOT_MY_VBUCKET, SUCCESS, Connection, key_in

NAME, TITLE = "failover", "Failover"
ITEMS, VALUE_BYTES = (20_000 if QUICK else 100_000), 512
ROUNDS = 1 if QUICK else 5
# The failover timeout in seconds, which determines the lease time: the default, and the shortest that Kedge allows.
TIMEOUTS_S = [5, 1]
BARS = [("failover_1024_vbuckets", "<=", 1.0, "s")]


class Writers:
    """Durable writes to every vBucket of the lost node until each was accepted."""

    def __init__(self, survivors, keys):
        self.accepted_at, self.keys = {}, keys
        self._threads = [threading.Thread(target=self._run, args=(node,), daemon=True) for node in survivors]
        self._end = time.perf_counter() + 60
        self._statuses = {}
        self._asked = threading.Semaphore(0)
        for thread in self._threads:
            thread.start()

    def _run(self, node):
        connection = Connection("127.0.0.1", node.ports[0])
        connection.set(next(iter(self.keys.values())), b"0", MAJORITY)
        self._asked.release()
        while time.perf_counter() < self._end:
            waiting = [vb for vb in self.keys if vb not in self.accepted_at]
            if not waiting:
                return
            for vb in waiting:
                status = connection.set(self.keys[vb], b"1", MAJORITY)
                self._statuses[status] = self._statuses.get(status, 0) + 1
                if status == SUCCESS:
                    self.accepted_at[vb] = time.perf_counter()
                elif status == NOT_MY_VBUCKET:
                    # One refusal says all: asked again after a moment, so that the server has its processor.
                    time.sleep(0.001)
                    break

    def wait_running(self):
        """Until each has had an answer."""
        for _ in self._threads:
            if not self._asked.acquire(timeout=60):
                raise RuntimeError("a survivor does not answer")

    def join(self):
        for thread in self._threads:
            thread.join()
        if len(self.accepted_at) < len(self.keys):
            missing = len(self.keys) - len(self.accepted_at)
            raise RuntimeError(f"{missing} vBuckets accepted no write within 60 s; statuses {self._statuses}")


def one(timeout_s):
    cluster = Cluster(3, 2, "failover", vbuckets=VBUCKETS)
    need_automatic_failover(cluster)
    cluster.nodes[0].tell("/settings/autoFailover", enabled="false", timeout=timeout_s)
    only(cluster.process)
    load(cluster.kv_url, "--num-items", ITEMS, "--num-threads", 6, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1,
         "--durability", "majority")
    lost, survivors = cluster.nodes[-1], cluster.nodes[:-1]
    probe = Connection("127.0.0.1", lost.ports[0])
    keys = {vb: key_in(vb) for vb in range(VBUCKETS)}
    keys = {vb: key for vb, key in keys.items() if probe.set(key, b"0", MAJORITY) == SUCCESS}
    probe.close()
    os.kill(lost.pid, signal.SIGKILL)
    writers = Writers(survivors, keys)
    writers.wait_running()
    began = time.perf_counter()
    survivors[0].command("failover", lost.name)
    command_s = time.perf_counter() - began
    writers.join()
    accepted = sorted(at - began for at in writers.accepted_at.values())
    cluster.stop()
    return {"command_s": command_s, "first_s": accepted[0], "last_s": accepted[-1], "vbuckets": len(accepted)}


def measure():
    measured = {timeout_s: [] for timeout_s in TIMEOUTS_S}
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        for timeout_s, runs in measured.items():
            runs.append(one(timeout_s))
    return measured


def report(measured, bars):
    # Done is done for the last vBucket, and for whoever gave the command.
    whole = median(max(run["command_s"], run["last_s"]) for run in measured[min(TIMEOUTS_S)])
    bars.at_most(BARS[0][0], whole, 1.0, "s")
    rows = []
    for timeout_s, runs in measured.items():
        for what, field in (
            ("the command", "command_s"), ("first write accepted", "first_s"),
            ("a write accepted in every vBucket of the lost node", "last_s"),
        ):
            each = [run[field] * 1e3 for run in runs]
            rows.append([f"{timeout_s} s", what, f"{median(each):,.0f} ms", f"{max(each):,.0f} ms"])
    return (
        f"Three nodes, two replicas, {VBUCKETS:,} vBuckets, {ITEMS:,} documents; the third node, which has "
        f"{measured[min(TIMEOUTS_S)][0]['vbuckets']} of them as active, is killed. From the start of `kedge cluster failover` while "
        f"durable writes (majority) to all its vBuckets are tried at both others. {ROUNDS} rounds. The command waits until the lease "
        f"of the lost node has ended, as the node may be alive for others; a lease is shorter than the failover timeout. The bar is of "
        f"a timeout of {min(TIMEOUTS_S)} s.\n\n" + table(["timeout", "until", "median", "worst"], rows)
    )
