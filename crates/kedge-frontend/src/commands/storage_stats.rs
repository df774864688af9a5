//! The groups of STAT about a bucket's files: `diskinfo`, `kvstore`, `kvtimings`, `compaction`, `encryption-key-ids`,
//! `disk-failures` and `disk-slowness`, and a part of `vbucket-details`.
//!
//! Names are those of Couchbase Server where it has the same figure.

use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{Bucket, CompactPhase, FileFigures, Timing};
use kedge_types::{Status, VbId};

use super::stat_lines::StatStep;
use crate::histogram::{self, HistogramFormat};
use crate::session::CommandFailure;
use crate::stat_generator::{AddStat, StatGenerator};

/// The figures of a vBucket's file. A file that cannot be read is left out, as its reads report the error.
fn file_of(bucket: &Bucket, vb: VbId) -> Option<FileFigures> {
    bucket.file_figures(vb).ok().flatten()
}

/// The numbers of all vBuckets.
fn all(bucket: &Bucket) -> impl Iterator<Item = VbId> + Send + use<> {
    (0..bucket.vbuckets()).map(VbId)
}

/// `diskinfo`: the live data and the length of the files; with `detail` of each vBucket.
///
/// # Errors
/// `Invalid` for another argument.
pub(super) fn disk_info(bucket: &Arc<Bucket>, argument: Option<&str>) -> StatStep {
    let detailed = match argument {
        None => false,
        Some("detail") => true,
        Some(_) => {
            return Err(CommandFailure::new(
                Status::Invalid,
                "the argument can only be detail",
            ));
        }
    };
    let (mut data, mut length) = (0, 0);
    let bucket = bucket.clone();
    let mut left = all(&bucket);
    Ok(Some(StatGenerator::new(move |each| {
        let Some(vb) = left.next() else {
            each("ep_db_data_size", &data.to_string());
            each("ep_db_file_size", &length.to_string());
            return false;
        };
        let Some(file) = file_of(&bucket, vb) else {
            return true;
        };
        data += file.data_bytes;
        length += file.file_bytes;
        if detailed {
            each(&format!("vb_{vb}:data_size"), &file.data_bytes.to_string());
            each(&format!("vb_{vb}:file_size"), &file.file_bytes.to_string());
            let percent = file.fragmentation_percent();
            each(&format!("vb_{vb}:fragmentation"), &percent.to_string());
        }
        true
    })))
}

/// The lines of `vbucket-details` about a vBucket's file.
pub(super) fn vbucket_file(bucket: &Bucket, vb: VbId, each: AddStat<'_>) {
    let Ok(Some(file)) = bucket.file_figures(vb) else {
        return;
    };
    for (name, value) in [
        ("db_data_size", file.data_bytes),
        ("db_file_size", file.file_bytes),
        ("db_fragmentation", u64::from(file.fragmentation_percent())),
        ("db_items", file.live),
        ("db_tombstones", file.deleted),
        ("db_purge_seqno", file.purge_seqno.get()),
    ] {
        each(&format!("vb_{vb}:{name}"), &value.to_string());
    }
    each(
        &format!("vb_{vb}:db_revision"),
        &file.revision.0.to_string(),
    );
}

/// The figures of the store, by their names in a bucket. One store serves reads and writes.
const STORE: [(&str, &str); 10] = [
    ("rw_0:open", "ep_storage_opened"),
    ("rw_0:open_files", "ep_storage_open_files"),
    ("rw_0:open_file_hits", "ep_storage_hits"),
    ("rw_0:open_file_misses", "ep_storage_misses"),
    ("rw_0:commits", "ep_storage_commits"),
    ("rw_0:io_document_writes", "ep_storage_committed_items"),
    ("rw_0:failure_set", "ep_storage_failed_commits"),
    ("rw_0:io_total_read_bytes", "ep_storage_read_bytes"),
    ("rw_0:io_total_write_bytes", "ep_storage_written_bytes"),
    ("rw_0:io_syncs", "ep_storage_syncs"),
];

/// `kvstore`: the operations on the files.
pub(super) fn kv_store(bucket: &Arc<Bucket>, each: AddStat<'_>) -> StatGenerator {
    each("rw_0:backend_type", "couchstore");
    let figures = bucket.figures();
    for (name, figure) in STORE {
        if let Some((_, value)) = figures.iter().find(|(known, _)| *known == figure) {
            each(name, &value.to_string());
        }
    }
    let mut loaded = 0_u32;
    let bucket = bucket.clone();
    let mut left = all(&bucket);
    StatGenerator::new(move |each| match left.next() {
        Some(vb) => {
            loaded += u32::from(file_of(&bucket, vb).is_some());
            true
        }
        None => {
            each("rw_0:numLoadedVb", &loaded.to_string());
            false
        }
    })
}

/// The histograms of the store.
const STORE_TIMINGS: [(&str, Timing); 9] = [
    ("rw_0:commit", Timing::ApplyCommit),
    ("rw_0:saveDocCount", Timing::ApplyBatchItems),
    ("rw_0:compact", Timing::Compaction),
    ("rw_0:readTime", Timing::BgLoad),
    ("rw_0:fsReadTime", Timing::FsRead),
    ("rw_0:fsReadSize", Timing::FsReadSize),
    ("rw_0:fsWriteTime", Timing::FsWrite),
    ("rw_0:fsWriteSize", Timing::FsWriteSize),
    ("rw_0:fsSyncTime", Timing::FsSync),
];

/// `kvtimings`: the durations and sizes of the operations on the files.
pub(super) fn kv_timings(bucket: &Bucket, style: HistogramFormat, each: AddStat<'_>) {
    for (name, timing) in STORE_TIMINGS {
        histogram::show_in(style, bucket, name, timing, each);
    }
}

/// `disk-failures`: the number of failed reads and writes.
pub(super) fn disk_failures(bucket: &Bucket, each: AddStat<'_>) {
    for (name, value) in bucket.figures() {
        if matches!(name, "ep_data_read_failed" | "ep_data_write_failed") {
            each(name, &value.to_string());
        }
    }
}

/// `disk-slowness SECONDS`: pending disk operations, and those of them that take longer than that.
///
/// # Errors
/// `Invalid` without a number.
pub(super) fn disk_slowness(
    bucket: &Bucket,
    argument: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    let seconds = argument.and_then(|argument| argument.parse().ok());
    let usage = CommandFailure::new(
        Status::Invalid,
        "the argument must be a number of seconds from which on an operation is slow",
    );
    let pending = bucket.pending_io(Duration::from_secs(seconds.ok_or(usage)?));
    for (name, value) in [
        ("pending_disk_read_num", pending.reads),
        ("pending_disk_read_slow_num", pending.slow_reads),
        ("pending_disk_write_num", pending.writes),
        ("pending_disk_write_slow_num", pending.slow_writes),
    ] {
        each(name, &value.to_string());
    }
    Ok(None)
}

const fn phase_name(phase: CompactPhase) -> &'static str {
    match phase {
        CompactPhase::Copy => "copy",
        CompactPhase::Sort => "sort",
        CompactPhase::Index => "index",
        CompactPhase::CatchUp => "catch_up",
        CompactPhase::Finish => "finish",
        _ => "unknown",
    }
}

/// `encryption-key-ids`: the names of the data keys that data of the bucket needs, as a JSON array.
pub(super) fn encryption_key_ids(bucket: &Bucket, each: AddStat<'_>) {
    let ids = bucket.persistence().encryption().key_ids();
    let ids = serde_json::to_string(&ids).expect("names serialise");
    each("encryption-key-ids", &ids);
}

/// `compaction`: finished compactions, and the progress of running and waiting ones.
pub(super) fn compaction(bucket: &Bucket, each: AddStat<'_>) {
    for (name, value) in bucket.figures() {
        if name.starts_with("ep_compaction") || name == "ep_expired_compactor" {
            each(name, &value.to_string());
        }
    }
    for compaction in bucket.persistence().compactions().progress() {
        let vb = compaction.vb;
        let state = if compaction.is_running {
            "running"
        } else {
            "queued"
        };
        each(&format!("vb_{vb}:state"), state);
        let Some(figures) = compaction.figures else {
            continue;
        };
        each(&format!("vb_{vb}:phase"), phase_name(figures.phase));
        for (name, value) in [
            ("entries", figures.entries),
            ("entries_total", figures.entries_total),
            ("bytes_read", figures.bytes_read),
            ("bytes_written", figures.bytes_written),
            ("file_size", figures.file_bytes),
        ] {
            each(&format!("vb_{vb}:{name}"), &value.to_string());
        }
    }
}
