"""What random updates write to the disk, by the bytes of the updates: logged against direct."""

from harness import QUICK, fresh_dir, say, table
from node import KEY_BYTES, load, size

from storage_parts.server import Server, bytes_below, need_settings

NAME, TITLE = "amplification", "Write amplification of random updates"
ITEMS, UPDATES, VALUE_BYTES, VBUCKETS = (100_000, 400_000, 512, 1024) if QUICK else (500_000, 2_000_000, 512, 1024)
CONNECTIONS, CHUNKS = 32, 4 if QUICK else 10
# Updates are due at fixed times, as many a second for both: how many a commit takes depends on it.
RATE_PER_S = 50_000
# As the files of a short run must be settled in it, changes are lazy for a shorter time there.
SETTLE_AGE = "3s" if QUICK else "10s"
# A run that takes more of the disk ends early. The figure is by what was updated until then.
DISK_BYTES_MAX = 9 << 30
WAYS = {"direct": {"commit_log": False}, "logged": {"commit_log": True, "settle_age": SETTLE_AGE}}
BARS = [("write_amplification_logged_vs_direct", "<=", 0.3, "x")]
KEPT = ("ep_log_appended_bytes", "ep_storage_written_bytes", "ep_storage_commits", "ep_storage_syncs", "ep_log_syncs",
        "ep_settled_items")


def one(way):
    say(f"{TITLE}: {way}")
    data = fresh_dir(f"amplification-{way}")
    server = Server(data, vbuckets=VBUCKETS, **WAYS[way])
    load(server.kv_url, "--num-items", ITEMS, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
    server.wait_settled()
    before, io_before = server.bucket_stats(), server.io()
    updates, seconds, errors = 0, 0.0, 0
    for chunk in range(CHUNKS):
        report = load(
            server.kv_url, "--num-items", ITEMS, "--num-threads", CONNECTIONS, "--pipeline", 8, *size(VALUE_BYTES),
            "--random-body", "--set-pct", 100, "--no-population", "--rate-limit", RATE_PER_S, "--num-cycles",
            UPDATES // CHUNKS // CONNECTIONS, "--seed", chunk + 2,
        )
        updates, seconds, errors = updates + report["ops"], seconds + report["seconds"], errors + report["errors"]
        if bytes_below(data) > DISK_BYTES_MAX:
            say(f"  the files have become too large after {updates:,} updates")
            break
    settling_s = server.wait_settled()
    after, io_after = server.bucket_stats(), server.io()
    disk_bytes = bytes_below(data)
    server.stop()
    return {
        "updates": updates, "update_bytes": updates * (VALUE_BYTES + KEY_BYTES), "seconds": seconds, "errors": errors,
        "settling_s": settling_s, "disk_bytes": disk_bytes,
        "kernel": {name: io_after[name] - io_before[name] for name in ("write_bytes", "cancelled_write_bytes")},
        "kedge": {name: after.get(name, 0) - before.get(name, 0) for name in after
                  if name in KEPT or ("compact" in name and isinstance(after[name], int))},
    }


def measure():
    need_settings("commit_log", "settle_age")
    return {way: one(way) for way in WAYS}


def report(measured, bars):
    rows = []
    for way, run in measured.items():
        kedge, bytes_each = run["kedge"], lambda count: f"{count / run['update_bytes']:.2f}"
        rows.append(
            [
                way, f"{run['updates']:,}", f"{run['updates'] / run['seconds']:,.0f}", bytes_each(run["kernel"]["write_bytes"]),
                bytes_each(kedge.get("ep_log_appended_bytes", 0)), bytes_each(kedge.get("ep_storage_written_bytes", 0)),
                f"{kedge.get('ep_storage_commits', 0):,}", f"{kedge.get('ep_storage_syncs', 0) + kedge.get('ep_log_syncs', 0):,}",
                f"{run['disk_bytes'] >> 20:,} MiB", f"{run['settling_s']:.1f} s", run["errors"],
            ]
        )
    ratio = [measured[way]["kernel"]["write_bytes"] / measured[way]["update_bytes"] for way in ("logged", "direct")]
    bars.at_most("write_amplification_logged_vs_direct", ratio[0] / ratio[1], 0.3, "x")
    head = [
        "files", "updates", "updates/s", "amplification, kernel", "of it the log, kedge", "the files, kedge", "commits", "syncs",
        "on disk after it", "until all was in files", "errors",
    ]
    return (
        f"{UPDATES:,} SETs of random ones of {ITEMS:,} documents, {VALUE_BYTES} random bytes each, {VBUCKETS:,} vBuckets, "
        f"{RATE_PER_S:,} a second; nobody waits for the disk. Amplification is bytes written by bytes of keys and values: what the "
        f"kernel counts for the process until everything is in the vBuckets' files, compaction among it, and what Kedge says that "
        f"it wrote.\n\n" + table(head, rows)
    )
