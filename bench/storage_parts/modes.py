"""Persisted writes three ways: files that are opened for each commit, files that stay open, and the commit log."""

from harness import QUICK, fresh_dir, median, only, say, table
from node import load, size

from storage_parts.server import Server, mean_between, need_settings

NAME, TITLE = "modes", "Persisted writes: files alone, and the commit log in front of them"
CONNECTIONS = [1, 2000]
ITEMS, VALUE_BYTES, VBUCKETS = (50_000 if QUICK else 200_000), 512, 1024
ROUNDS, SECONDS, WARMUP_S = (1, 1.5, 0.3) if QUICK else (5, 4, 0.5)
HISTOGRAM = "sync_write_commit_persist_to_majority"
# Settings of each way, and what it is called.
WAYS = {
    "opened for each commit": {"commit_log": False, "keep_files_open": False},
    "kept open": {"commit_log": False, "keep_files_open": True},
    # Applying runs in the measured time too.
    "commit log": {"commit_log": True, "apply_max_lag": "1s" if QUICK else "2s"},
}
CLOSED, OPEN, LOG = WAYS
BARS = [
    ("log_vs_direct_2000", ">=", 5.0, "x"),
    ("log_vs_direct_1", ">=", 1.5, "x"),
    ("keep_files_open_vs_not_2000", ">=", 1.0, "x"),
    ("keep_files_open_vs_not_1", ">=", 1.0, "x"),
]
LIMITS = {name: (limit, unit) for name, _, limit, unit in BARS}


def persisted(server, count, items, seconds, warmup):
    """Persisted writes by `count` connections; the server's histogram of them before and after, and the report."""
    before = server.timing(HISTOGRAM)
    report = load(
        server.kv_url, "--durability", "persist_to_majority", "--num-items", items, "--num-threads", count,
        *size(VALUE_BYTES), "--random-body", "--set-pct", 100, "--sequential", "--no-population", "--duration",
        seconds + warmup, "--warmup", warmup,
    )
    after = server.timing(HISTOGRAM)
    report["server_mean_us"], report["server_count"] = mean_between(before, after)
    if report["errors"]:
        say(f"  {report['errors_by_kind']}")
    return before, after, report


def one(server, count):
    stats = server.bucket_stats()
    _, _, report = persisted(server, count, ITEMS, SECONDS, WARMUP_S)
    stats_after = server.bucket_stats()
    for name in ("ep_storage_commits", "ep_storage_opened", "ep_storage_syncs", "ep_log_syncs"):
        report[name] = stats_after.get(name, 0) - stats.get(name, 0)
    return report


def in_turn(title, rounds, items, start, one, before=lambda count: None):
    """Samples by way and connections. Each round has fresh servers, with all documents in their files."""
    samples = {way: {count: [] for count in CONNECTIONS} for way in WAYS}
    for turn in range(rounds):
        say(f"{title}: round {turn + 1} of {rounds}")
        servers = {}
        for way, settings in WAYS.items():
            server = start(way.replace(" ", "-"), settings)
            only(server.process)
            load(server.kv_url, "--num-items", items, "--num-threads", 4, *size(VALUE_BYTES), "--random-body",
                 "--num-cycles", 1)
            server.wait_applied()
            servers[way] = server
        ways = list(WAYS)
        for at, count in enumerate(CONNECTIONS):
            before(count)
            first = (turn + at) % len(ways)
            for way in ways[first:] + ways[:first]:
                # Before it is asked anything: a frozen server lets whoever asks wait.
                only(servers[way].process)
                samples[way][count].append(one(servers[way], count))
        for server in servers.values():
            server.stop()
    return samples


def measure():
    need_settings("commit_log", "keep_files_open")
    def start(name, settings):
        return Server(fresh_dir(name), name=name, vbuckets=VBUCKETS, **settings)
    return in_turn(TITLE, ROUNDS, ITEMS, start, one)


def ratio(samples, slower, faster, count, field="server_mean_us"):
    """Of each round, then the one in the middle: neighbours in time see the same machine."""
    pairs = zip(samples[slower][count], samples[faster][count])
    return median(before[field] / after[field] for before, after in pairs if after[field])


def report(samples, bars):
    rows = []
    for count in CONNECTIONS:
        for way in WAYS:
            runs = samples[way][count]
            each = lambda field: median(run[field] for run in runs)
            rows.append(
                [
                    count, way, f"{each('server_mean_us'):,.0f}",
                    *(f"{each(field):,.0f}" for field in ("mean_us", "p50_us", "p99_us", "p999_us", "ops_per_s")),
                    f"{median(run['ep_storage_commits'] / max(run['ops'], 1) for run in runs):.3f}",
                    f"{ratio(samples, CLOSED, way, count):.2f}", f"{ratio(samples, OPEN, way, count):.2f}",
                    sum(run["errors"] for run in runs),
                ]
            )
        for name, slower, faster in ((f"log_vs_direct_{count}", OPEN, LOG), (f"keep_files_open_vs_not_{count}", CLOSED, OPEN)):
            bars.at_least(name, ratio(samples, slower, faster, count), *LIMITS[name])
    head = [
        "connections", "files", "mean us, server", "mean us, client", "p50 us", "p99 us", "p99.9 us", "writes/s",
        "commits of files a write", "faster than closed", "faster than kept open", "errors",
    ]
    return (
        f"{VBUCKETS:,} vBuckets, {ITEMS:,} documents of {VALUE_BYTES} random bytes that are all in their files, 100 % SET with "
        f"`persist_to_majority`, medians of {ROUNDS} rounds of {SECONDS} s. The server's mean is that of the histogram "
        f"`{HISTOGRAM}`; ratios are of it.\n\n" + table(head, rows)
    )


FIELDS = {"mean, server": "server_mean_us", "p50": "p50_us", "p99": "p99_us", "p99.9": "p999_us"}


def plots(samples):
    """Latency, by way and connections."""
    series = {
        f"{way}, {count:,}": [median(run[field] for run in samples[way][count]) for field in FIELDS.values()]
        for count in CONNECTIONS for way in WAYS
    }
    return [("modes", "Persisted writes from 1 and 2,000 connections: latency, us", list(FIELDS), series)]
