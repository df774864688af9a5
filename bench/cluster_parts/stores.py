"""Throughput of a cluster whose coordination store is etcd, against the embedded store."""

from harness import QUICK, median, say, table
from node import load, size

from cluster_parts.nodes import VBUCKETS, Cluster, need_cluster_run_flag
from cluster_parts.rivals import Etcd

NAME, TITLE = "stores", "etcd against the embedded store"
NODES, ITEMS, CONNECTIONS, VALUE_BYTES = 3, 100_000, 64, 512
ROUNDS, SECONDS, WARMUP_S = (1, 1, 0.3) if QUICK else (9, 4, 1)
LEVELS = {"plain": "none", "durable": "persist_to_majority"}
EMBEDDED, ETCD = STORES = ("embedded", "etcd")
BARS = [(f"etcd_vs_embedded_{name}", ">=", 0.98, "x") for name in LEVELS]


def one(store):
    etcd = Etcd(members=1) if store == ETCD else None
    settings = {"coordinator": f"etcd://{etcd.endpoints}/kedge"} if etcd else {}
    cluster = Cluster(NODES, 1, "stores", vbuckets=VBUCKETS, **settings)
    measured = {}
    for name, level in LEVELS.items():
        measured[name] = load(
            cluster.kv_url, "--durability", level, "--num-items", ITEMS, "--num-threads", CONNECTIONS, *size(VALUE_BYTES),
            "--random-body", "--set-pct", 100, "--sequential", "--no-population", "--duration", SECONDS + WARMUP_S,
            "--warmup", WARMUP_S,
        )
    cluster.stop()
    if etcd:
        etcd.stop()
    return measured


def measure():
    need_cluster_run_flag("coordinator")
    samples = {store: [] for store in STORES}
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        for store in STORES if turn % 2 else reversed(STORES):
            samples[store].append(one(store))
    return samples


def report(samples, bars):
    rows = []
    for name, level in LEVELS.items():
        pairs = zip(samples[ETCD], samples[EMBEDDED])
        ratio = median(etcd[name]["ops_per_s"] / embedded[name]["ops_per_s"] for etcd, embedded in pairs)
        bars.at_least(f"etcd_vs_embedded_{name}", ratio, 0.98, "x")
        for store, runs in samples.items():
            runs = [run[name] for run in runs]
            times = (f"{median(run[field] for run in runs):,.0f}" for field in ("ops_per_s", "p50_us", "p99_us"))
            rows.append([level, store, *times, sum(run["errors"] for run in runs)])
    return (
        f"Three nodes, one replica, {CONNECTIONS} connections, values of {VALUE_BYTES} bytes. etcd has one member, on this "
        f"machine; each cluster is started for its run. Medians of {ROUNDS} rounds of {SECONDS} s; the bars are medians of the "
        f"ratios within a round.\n\n" + table(["durability", "store", "writes/s", "p50 us", "p99 us", "errors"], rows)
    )
