//! The groups of STAT about memory: `checkpoint` and `hash`, of all vBuckets or of one, and `eviction` and
//! `frequency-counters`.
//!
//! Names are those of Couchbase Server where it has the same figure.

use std::sync::Arc;

use kedge_bucket::{
    Bucket, CheckpointFigures, CursorFigures, FrequencyCounts, HashFigures, StreamFigures,
    TimingSnapshot, VbState,
};
use kedge_types::VbId;
use kedge_types::limits::STAT_COUNTED_ITEMS_MAX;

use super::stat_lines::{StatStep, of_vbuckets, state_name_of};
use crate::histogram::{self, HistogramFormat};
use crate::stat_generator::AddStat;

/// `checkpoint`: the items that a vBucket keeps for persistence and for streams.
///
/// # Errors
/// `Invalid` for an argument that is no number, `NotMyVbucket` for a vBucket that this node does not have.
pub(super) fn checkpoint(
    bucket: &Arc<Bucket>,
    argument: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    let streams = bucket.dcp().stream_figures();
    let look = |bucket: &Bucket, vb| Some((state(bucket, vb)?, bucket.checkpoint_figures(vb)?));
    of_vbuckets(bucket, argument, each, look, move |vb, found, each| {
        let (state, figures) = found;
        each(&format!("vb_{vb}:state"), state);
        checkpoints(vb, &figures, each);
        for stream in streams.iter().filter(|stream| stream.vb == vb) {
            stream_cursor(stream, each);
        }
    })
}

fn state(bucket: &Bucket, vb: VbId) -> Option<&'static str> {
    bucket.vbucket_state(vb).ok().map(state_name_of)
}

fn checkpoints(vb: VbId, figures: &CheckpointFigures, each: AddStat<'_>) {
    let CursorFigures {
        checkpoint,
        seqno,
        remaining,
    } = figures.persistence;
    for (name, value) in [
        ("open_checkpoint_id", figures.open_id),
        ("last_closed_checkpoint_id", figures.open_id - 1),
        ("persisted_checkpoint_id", checkpoint - 1),
        ("num_checkpoints", figures.count),
        ("num_checkpoint_items", figures.items),
        ("num_open_checkpoint_items", figures.open_items),
        ("num_conn_cursors", 1 + figures.streams.len() as u64),
        ("num_items_for_persistence", remaining),
        ("mem_usage", figures.bytes as u64),
        ("persistence:cursor_checkpoint_id", checkpoint),
        ("persistence:cursor_seqno", seqno.get()),
        ("persistence:num_items_for_cursor", remaining),
    ] {
        each(&format!("vb_{vb}:{name}"), &value.to_string());
    }
}

/// Shows the cursor of a stream, with all items that it has not sent, in memory or on disk.
fn stream_cursor(stream: &StreamFigures, each: AddStat<'_>) {
    let prefix = format!("vb_{}:{}", stream.vb, stream.connection);
    for (name, value) in [
        ("cursor_seqno", stream.last_sent.get()),
        ("num_items_for_cursor", stream.remaining),
    ] {
        each(&format!("{prefix}:{name}"), &value.to_string());
    }
}

/// `hash`: the hash tables. Their items are counted, too, for a comparison with the reported figures, unless that takes
/// long, as the vBucket is locked meanwhile. Then `counted` is the reported number: `cbstats` needs that line of each
/// vBucket for its averages, and crashes without any.
///
/// # Errors
/// As [`checkpoint`].
pub(super) fn hash(bucket: &Arc<Bucket>, argument: Option<&str>, each: AddStat<'_>) -> StatStep {
    let look = |bucket: &Bucket, vb| {
        let reported = bucket.hash_figures(vb, false)?;
        let items = reported.documents + reported.tombstones;
        let figures = match items <= STAT_COUNTED_ITEMS_MAX {
            true => bucket.hash_figures(vb, true)?,
            false => reported,
        };
        Some((state(bucket, vb)?, figures))
    };
    of_vbuckets(
        bucket,
        argument,
        each,
        look,
        |vb, (state, figures), each| {
            each(&format!("vb_{vb}:state"), state);
            table(vb, &figures, each);
        },
    )
}

fn table(vb: VbId, figures: &HashFigures, each: AddStat<'_>) {
    let mut tell = |name: &str, value: usize| {
        each(&format!("vb_{vb}:{name}"), &value.to_string());
    };
    tell("size", figures.slots);
    tell("shards", figures.shards);
    tell("reported", figures.documents + figures.tombstones);
    tell("num_deleted_items", figures.tombstones);
    tell("num_non_resident", figures.without_value);
    tell("mem_size", figures.item_bytes);
    tell("slots_mem_size", figures.slot_bytes);
    // A slot has at most one item.
    tell("min_depth", 0);
    tell(
        "max_depth",
        usize::from(figures.documents + figures.tombstones > 0),
    );
    match figures.counted {
        Some((items, bytes)) => {
            tell("counted", items);
            tell("mem_size_counted", bytes);
        }
        None => tell("counted", figures.documents + figures.tombstones),
    }
}

/// `eviction`: the frequency counters of evicted documents.
pub(super) fn eviction(bucket: &Bucket, style: HistogramFormat, each: AddStat<'_>) {
    let [active, replica] = bucket.residency().pager().evicted();
    for (name, counts) in [
        ("ep_active_or_pending_eviction_values_evicted", active),
        ("ep_replica_eviction_values_evicted", replica),
    ] {
        frequencies(style, name, &counts, each);
    }
}

/// `frequency-counters`: the frequency counters of a sample of evictable documents.
pub(super) fn frequency_counters(bucket: &Bucket, style: HistogramFormat, each: AddStat<'_>) {
    for state in [VbState::Active, VbState::Replica, VbState::Pending] {
        let name = format!("vb_{}_evictable_mfu", state_name_of(state));
        frequencies(
            style,
            &name,
            &bucket.residency().pager().evictable(state),
            each,
        );
    }
}

/// Shows a histogram, unless it is empty.
fn frequencies(style: HistogramFormat, name: &str, counts: &FrequencyCounts, each: AddStat<'_>) {
    let count = counts.0.iter().sum();
    let buckets = (0..).zip(counts.0);
    let buckets = buckets.filter(|(_, count)| *count > 0);
    let snapshot = TimingSnapshot {
        count,
        buckets: buckets.map(|(at, count)| (at, at, count)).collect(),
    };
    histogram::tell(style, name, &snapshot, each);
}
