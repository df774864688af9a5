"""Kedge and memcached with the same items, and one run of cases against both."""

from harness import fresh_dir, say, table
from node import SERVER_THREADS, Kedge, load, size

from kv_parts.cells import FIGURES, figures, measured, ratio
from kv_parts.servers import Memcached

CONNECTIONS, PIPELINE = 32, 32
# In this order or the reverse one, so that each server stands beside the rival that it is compared with.
TARGETS = ["memcached_text", "kedge_text", "kedge_binary", "memcached_binary", "kedge_kv"]
RIVAL_OF = {"kedge_text": "memcached_text", "kedge_binary": "memcached_binary", "kedge_kv": "memcached_binary"}
LEGEND = (
    "*text* and *binary* are the protocols of memcached, for Kedge on its memcached port; *kedge_kv* is its key-value port, and is "
    "compared with memcached's binary protocol."
)


class Pair:
    """Fresh servers that have all items. Kedge's log keeps every SET, so a pair serves for one round."""

    def __init__(self, items, value_bytes):
        self.kedge, self.memcached = Kedge(fresh_dir("kedge")), Memcached()
        self.items = ["--num-items", items, "--num-threads", CONNECTIONS, *size(value_bytes)]
        for url in (self.memcached.url, self.kedge.memcached_url):
            load(url, *self.items, "--pipeline", PIPELINE, "--num-cycles", 1)

    def measure(self, case, target, flags, seconds):
        server, protocol = target.rsplit("_", 1)
        process = self.memcached.process if server == "memcached" else self.kedge.process
        url = self.memcached.url if server == "memcached" else self.kedge.memcached_url
        if protocol == "kv":
            url = self.kedge.kv_url
        text = ["--protocol", "memcached-text"] if protocol == "text" else []
        command = [*self.items, *text, *flags, "--no-population", "--duration", seconds]
        return measured(f"{target} {case}", process, lambda: load(url, *command))

    def stop(self):
        self.memcached.process.stop()
        self.kedge.stop()


def run_cases(what, cases, items, value_bytes, rounds, seconds, targets=TARGETS):
    """Samples by case and target."""
    samples = {case: {target: [] for target in targets} for case in cases}
    for turn in range(rounds):
        say(f"{what}: round {turn + 1} of {rounds}")
        pair = Pair(items, value_bytes)
        for case, flags in cases.items():
            for target in targets if turn % 2 == 0 else reversed(targets):
                samples[case][target].append(pair.measure(case, target, flags, seconds))
        pair.stop()
    return samples


def ratios(targets, ours):
    """Ratios of a target to its rival: operations per second, p99, and processor time per operation."""
    runs, rival = targets[ours], targets[RIVAL_OF[ours]]
    fields = {"ops": "ops_per_s", "p99": "p99_us", "cpu": "server_cpu_us_per_op"}
    return {name: ratio(runs, rival, field) for name, field in fields.items()}


def cases_table(samples):
    """A row for each case and target."""
    rows = []
    for case, targets in samples.items():
        for target, runs in targets.items():
            compared = [f"{each:.2f}" for each in ratios(targets, target).values()] if target in RIVAL_OF else [""] * 3
            rows.append([case, target, *figures(runs), *compared])
    return table(["case", "server", *FIGURES, "ratio of ops/s", "of p99", "of CPU"], rows)


def setting(items, value_bytes, rounds, seconds):
    """The conditions of a table, in a sentence."""
    return (
        f"{value_bytes}-byte values, {items:,} items, {CONNECTIONS} connections, {SERVER_THREADS} server threads each, {PIPELINE} "
        f"requests in flight where pipelined, median of {rounds} rounds of {seconds} s."
    )
