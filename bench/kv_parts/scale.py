"""Many connections, and many buckets."""

from harness import QUICK, fresh_dir, say, table
from node import Kedge, load, size

from kv_parts.cells import FIGURES, figures, measured, ratio
from kv_parts.servers import Memcached, versions

NAME, TITLE, BARS = "scale", "Many connections, many buckets", []
ITEMS, VALUE_BYTES = 100_000, 512
CONNECTIONS = [100, 1000] if QUICK else [100, 1000, 10_000]
BUCKETS = 8 if QUICK else 64
ROUNDS, SECONDS = (1, 0.5) if QUICK else (3, 4)
QUOTA_MB = 100
MIB = 1 << 20


def flags(connections):
    return [
        "--num-items", ITEMS, "--num-threads", connections, *size(VALUE_BYTES), "--set-pct", 10, "--no-population",
        "--duration", SECONDS,
    ]


def connections():
    """Samples by number of connections and server."""
    samples = {}
    for turn in range(ROUNDS):
        say(f"{TITLE}: connections, round {turn + 1} of {ROUNDS}")
        kedge, memcached = Kedge(fresh_dir("kedge")), Memcached(connections=max(CONNECTIONS) + 100)
        servers = {"memcached": (memcached.process, memcached.url), "kedge": (kedge.process, kedge.memcached_url)}
        for _, url in servers.values():
            load(url, "--num-items", ITEMS, "--num-threads", 32, *size(VALUE_BYTES), "--num-cycles", 1)
        for count in CONNECTIONS:
            for name, (process, url) in servers.items():
                run = measured(f"{name}, {count} connections", process, lambda: load(url, *flags(count)))
                samples.setdefault((count, name), []).append(run)
        memcached.process.stop()
        kedge.stop()
    return samples


def loaded(server):
    """The number of buckets that are loaded."""
    listed = server.ask("/pools/default/buckets") or []
    return sum(bucket["nodes"][0]["status"] == "healthy" for bucket in listed)


def buckets():
    """A server with many buckets: its memory, and one of its buckets beside the only bucket of another server."""
    say(f"{TITLE}: {BUCKETS} buckets")
    many, one = Kedge(fresh_dir("kedge-many"), name="kedge-many"), Kedge(fresh_dir("kedge"))
    empty = many.process.resident_bytes()
    for number in range(1, BUCKETS):
        many.tell("/pools/default/buckets", name=f"b{number}", ramQuotaMB=QUOTA_MB)
    many.wait_for("all buckets are loaded", lambda _: loaded(many) == BUCKETS, 60)
    grown = many.process.resident_bytes() - empty
    runs = {"many": [], "one": []}
    servers = {"many": many, "one": one}
    for server in servers.values():
        load(server.kv_url, "--num-items", ITEMS, "--num-threads", 32, *size(VALUE_BYTES), "--num-cycles", 1)
    for _ in range(ROUNDS):
        for name, server in servers.items():
            runs[name].append(measured(f"{name} buckets", server.process, lambda: load(server.kv_url, *flags(100))))
    for server in servers.values():
        server.stop()
    return {"bytes_per_bucket": grown / (BUCKETS - 1), "runs": runs}


def measure():
    return {"versions": versions("memcached"), "connections": connections(), "buckets": buckets()}


def report(measured, _bars):
    rows = []
    for (count, name), runs in measured["connections"].items():
        theirs = measured["connections"][count, "memcached"]
        compared = [f"{ratio(runs, theirs, field):.2f}" for field in ("ops_per_s", "p99_us", "server_cpu_us_per_op")]
        rows.append([f"{count:,}", name, *figures(runs), *(compared if name == "kedge" else [""] * 3)])
    many = measured["buckets"]
    beside = ratio(many["runs"]["many"], many["runs"]["one"], "ops_per_s")
    cpu = ratio(many["runs"]["many"], many["runs"]["one"], "server_cpu_us_per_op")
    return (
        f"Beside {measured['versions']['memcached']}. 90 GETs and 10 SETs of {VALUE_BYTES} bytes, {ITEMS:,} items, one request in "
        f"flight per connection, binary protocol, median of {ROUNDS} rounds of {SECONDS} s.\n\n"
        + table(["connections", "server", *FIGURES, "ratio of ops/s", "of p99", "of CPU"], rows)
        + f"\nA server with {BUCKETS} buckets of 1,024 vBuckets needs {many['bytes_per_bucket'] / MIB:.2f} MiB of resident memory for "
        f"each bucket without documents. One of its buckets, beside the only bucket of another server, with 100 connections: "
        f"{beside:.2f}x the throughput at {cpu:.2f}x the processor time per operation.\n"
    )
