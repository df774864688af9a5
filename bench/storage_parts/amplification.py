"""What random updates write to the disk, by the bytes of the updates: logged against direct."""

from harness import QUICK, fresh_dir, only, say, table
from node import KEY_BYTES, load, size

from storage_parts.server import Server, bytes_below, device_written_bytes, need_settings

NAME, TITLE = "amplification", "Write amplification of random updates"
ITEMS, UPDATES, VALUE_BYTES, VBUCKETS = (50_000, 100_000, 512, 1024) if QUICK else (500_000, 2_000_000, 512, 1024)
# Parts of a stream: after each the disk is looked at.
CHUNKS = 2 if QUICK else 4
# As the files of a short run must be applied in it, changes are lazy for a shorter time there.
APPLY_MAX_LAG = "1s" if QUICK else "10s"
# A stream ends early when it takes more of the disk, or more time than this. The figure is by what was updated until then.
DISK_BYTES_MAX, CHUNK_S = 9 << 30, 1 if QUICK else 12
WAYS = {"direct": {"commit_log": False}, "logged": {"commit_log": True, "apply_max_lag": APPLY_MAX_LAG}}
PERSISTED, PLAIN = "each waited for until it is on the disk", "not waited for"
CONNECTIONS = {PERSISTED: 2000, PLAIN: 32}
# Of the stream that nobody waits for, as many for both: how many go together in a commit depends on it.
RATE_PER_S = 100_000
FLAGS = {
    PERSISTED: ["--durability", "persist_to_majority", "--duration", CHUNK_S],
    PLAIN: ["--pipeline", 8, "--rate-limit", RATE_PER_S],
}
BARS = [("write_amplification_logged_vs_direct", "<=", 0.3, "x")]
KEPT = ("ep_log_appended_bytes", "ep_storage_written_bytes", "ep_storage_commits", "ep_storage_syncs", "ep_log_syncs",
        "ep_applied_items", "ep_compactions", "ep_compaction_bytes")


def stream(server, which):
    before, io_before, device_before = server.bucket_stats(), server.io(), device_written_bytes(server.data_dir)
    updates, seconds, refused = 0, 0.0, 0
    for chunk in range(CHUNKS):
        report = load(
            server.kv_url, "--num-items", ITEMS, "--num-threads", CONNECTIONS[which], *FLAGS[which], *size(VALUE_BYTES),
            "--random-body", "--set-pct", 100, "--no-population", "--num-cycles",
            UPDATES // CHUNKS // CONNECTIONS[which], "--seed", chunk + 2,
        )
        updates, seconds, refused = updates + report["ops"], seconds + report["seconds"], refused + report["errors"]
        if bytes_below(server.data_dir) > DISK_BYTES_MAX:
            say(f"  the files have become too large after {updates:,} updates")
            break
    applying_s = server.wait_applied()
    after, io_after, device_after = server.bucket_stats(), server.io(), device_written_bytes(server.data_dir)
    return {
        "updates": updates, "update_bytes": updates * (VALUE_BYTES + KEY_BYTES), "seconds": seconds, "refused": refused,
        "applying_s": applying_s, "disk_bytes": bytes_below(server.data_dir),
        "device_bytes": device_after - device_before,
        "kernel": {name: io_after[name] - io_before[name] for name in ("write_bytes", "cancelled_write_bytes")},
        "kedge": {name: after[name] - before.get(name, 0) for name in KEPT if name in after},
    }


def measure():
    need_settings("commit_log", "apply_max_lag")
    measured = {which: {} for which in CONNECTIONS}
    for way, settings in WAYS.items():
        server = Server(fresh_dir(f"amplification-{way}"), vbuckets=VBUCKETS, **settings)
        only(server.process)
        load(server.kv_url, "--num-items", ITEMS, "--num-threads", 4, *size(VALUE_BYTES), "--random-body", "--num-cycles", 1)
        server.wait_applied()
        for which in CONNECTIONS:
            say(f"{TITLE}: {way}, {which}")
            measured[which][way] = stream(server, which)
        server.stop()
    return measured


def by_device(run):
    return run["device_bytes"] / run["update_bytes"]


def report(measured, bars):
    rows = []
    for which, runs in measured.items():
        for way, run in runs.items():
            kedge = run["kedge"]
            dirtied = run["kernel"]["write_bytes"] / run["update_bytes"]
            each = lambda name: f"{kedge.get(name, 0) / run['update_bytes']:.2f}"
            rows.append(
                [
                    which, way, f"{run['updates']:,}", f"{run['updates'] / run['seconds']:,.0f}", f"{by_device(run):.2f}",
                    f"{by_device(run) / by_device(runs['direct']):.2f}", each("ep_log_appended_bytes"),
                    each("ep_storage_written_bytes"), f"{dirtied:.2f}", f"{kedge.get('ep_storage_commits', 0):,}",
                    f"{kedge.get('ep_storage_syncs', 0) + kedge.get('ep_log_syncs', 0):,}",
                    f"{kedge.get('ep_compactions', 0):,}", f"{run['disk_bytes'] >> 20:,} MiB", f"{run['applying_s']:.1f} s",
                    run["refused"],
                ]
            )
    runs = measured[PERSISTED]
    bars.at_most(BARS[0][0], by_device(runs["logged"]) / by_device(runs["direct"]), 0.3, "x")
    head = [
        "updates", "files", "number", "a second", "amplification", "vs. direct", "of it the log, kedge",
        "the files, kedge", "write_bytes", "commits", "syncs", "compactions", "on disk after it", "until all was in files", "refused",
    ]
    return (
        f"SETs of random ones of {ITEMS:,} documents, {VALUE_BYTES} random bytes each, {VBUCKETS:,} vBuckets: {UPDATES:,}, or what "
        f"is done in {CHUNKS * CHUNK_S:g} s; {CONNECTIONS[PERSISTED]:,} connections with `persist_to_majority`, and {RATE_PER_S:,} a "
        f"second without. Amplification is bytes written by bytes of keys and values: what the device got until everything is in "
        f"the vBuckets' files, with compactions, the preparation of log segments, the file system's journal, and what others "
        f"wrote meanwhile; and what Kedge says that it wrote. `write_bytes` of the process counts a whole run of pages when "
        f"one of them is changed, so it is only shown. Refused: another write to the document was not on the disk yet. The bar "
        f"is about writes that are waited for: only then both keep the same promise. Otherwise direct mode may be seconds "
        f"behind, and makes few large commits of it.\n\n"
        + table(head, rows)
    )


def plots(measured):
    """Bytes written by bytes of updates, by how they are waited for."""
    own = lambda name: lambda run: run["kedge"].get(name, 0) / run["update_bytes"]
    written = {"the device": by_device, "log": own("ep_log_appended_bytes"), "files": own("ep_storage_written_bytes")}
    series = {
        f"{way}, {what}": [figure(runs[way]) for runs in measured.values()]
        for way in WAYS for what, figure in written.items()
    }
    # Without a log nothing is written to one.
    series = {name: each for name, each in series.items() if any(each)}
    at = [which.split(" until")[0] for which in measured]
    return [("amplification", "Bytes written by bytes of random updates", at, series)]
