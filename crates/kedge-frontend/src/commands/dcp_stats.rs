//! The groups of STAT about streams and SyncWrites: `dcp`, `dcpagg`, `dcp-vbtakeover`, `durability-monitor` and
//! `vbucket-durability-state`.
//!
//! Names are those of Couchbase Server where it has the same figure.

use std::collections::BTreeMap;

use kedge_bucket::{Bucket, DurabilityFigures, StreamFigures, StreamState, Topology, VbFigures};
use kedge_node::coordination::LinkStatus;
use kedge_types::{Status, VbId};
use serde::Deserialize;
use serde_json::Value;

use super::stat_lines::{StatStep, vbucket_number};
use crate::dcp::connections::DcpFigures;
use crate::server_context::ServerContext;
use crate::session::CommandFailure;
use crate::stat_generator::{AddStat, StatGenerator};

/// The default separator of `dcpagg`: connections whose names are equal in front of it are added up.
const SEPARATOR: &str = ":";

/// The replication links of this node for a bucket.
fn links(shared: &ServerContext, bucket: &Bucket) -> Vec<LinkStatus> {
    let mut links = shared.replication.links();
    links.retain(|link| link.bucket == bucket.name());
    links
}

/// The format of the streams in `dcp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StreamFormat {
    /// A line for each figure.
    #[default]
    Legacy,
    /// A line for each stream, with a JSON object of its figures.
    Json,
    /// No lines.
    Skip,
}

type StreamFields = Vec<(&'static str, Value)>;

impl StreamFormat {
    /// The format of the member `stream_format` of the request's JSON; other members are ignored.
    ///
    /// # Errors
    /// `Invalid`.
    fn of(arguments: &[u8]) -> Result<Self, CommandFailure> {
        #[derive(Deserialize)]
        struct DcpStatArguments {
            #[serde(default)]
            stream_format: StreamFormat,
        }
        if arguments.is_empty() {
            return Ok(Self::default());
        }
        let parsed = serde_json::from_slice(arguments);
        let DcpStatArguments { stream_format } = parsed.map_err(|_| {
            CommandFailure::new(
                Status::Invalid,
                "the value must be an object; its stream_format may be legacy, json or skip",
            )
        })?;
        Ok(stream_format)
    }

    fn lines(self, connection: &str, vb: VbId, fields: StreamFields) -> StatLines {
        let key = format!("eq_dcpq:{connection}:stream_{vb}");
        match self {
            Self::Legacy => {
                let line = |(what, value)| {
                    let value = match value {
                        Value::String(text) => text,
                        other => other.to_string(),
                    };
                    (format!("{key}_{what}"), value)
                };
                fields.into_iter().map(line).collect()
            }
            Self::Json => {
                let owned = fields
                    .into_iter()
                    .map(|(what, value)| (what.to_owned(), value));
                vec![(key, Value::Object(owned.collect()).to_string())]
            }
            Self::Skip => Vec::new(),
        }
    }
}

/// `dcp`: every connection with its streams.
pub(super) fn connections(
    shared: &ServerContext,
    bucket: &Bucket,
    json: &[u8],
    each: AddStat<'_>,
) -> StatStep {
    let format = StreamFormat::of(json)?;
    let producers = shared.dcp.of(bucket.name());
    let links = links(shared, bucket);
    each("ep_dcp_count", &(producers.len() + links.len()).to_string());
    each("ep_dcp_producer_count", &producers.len().to_string());
    each("ep_dcp_consumer_count", &links.len().to_string());
    let streams = match format {
        StreamFormat::Skip => Vec::new(),
        StreamFormat::Legacy | StreamFormat::Json => bucket.dcp().stream_figures(),
    };
    let walk = StatGenerator::over(producers, |connection, each| producer(&connection, each))
        .then(move || {
            StatGenerator::over(streams, move |stream, each| {
                let lines = format.lines(&stream.connection, stream.vb, fields(&stream));
                show(lines, each);
            })
        })
        .then(move || {
            let parts = links
                .into_iter()
                .flat_map(move |link| parts_of_link(link, format));
            StatGenerator::over(parts, show)
        });
    Ok(Some(walk))
}

type StatLines = Vec<(String, String)>;

fn show(lines: StatLines, each: AddStat<'_>) {
    for (name, value) in lines {
        each(&name, &value);
    }
}

fn producer(connection: &DcpFigures, each: AddStat<'_>) {
    let (name, figures) = (&connection.name, &connection.producer);
    let mut show = |what, value: &str| each(&format!("eq_dcpq:{name}:{what}"), value);
    show("type", "producer");
    show("num_streams", &figures.streams.to_string());
    show("items_sent", &figures.items.to_string());
    show("total_bytes_sent", &figures.bytes.to_string());
    show("unacked_bytes", &figures.unacknowledged.to_string());
    show("max_buffer_bytes", &figures.buffer_bytes.to_string());
    show("flow_control", enabled(figures.buffer_bytes > 0));
    show("noop_enabled", &figures.noop_enabled.to_string());
}

fn fields(stream: &StreamFigures) -> StreamFields {
    vec![
        ("state", stream.state.name().into()),
        ("last_sent_seqno", stream.last_sent.get().into()),
        ("backfill_sent", stream.backfilled.into()),
        ("memory_phase", stream.from_memory.into()),
        ("items_remaining", stream.remaining.into()),
        ("backfill_buffer_bytes", stream.buffered_bytes.into()),
        ("cursor_drops", stream.cursor_drops.into()),
    ]
}

/// The lines of a link and of each vBucket that it replicates.
fn parts_of_link(link: LinkStatus, format: StreamFormat) -> impl Iterator<Item = StatLines> + Send {
    let name = format!("replication:{}", link.peer.name);
    let line = |prefix: &str, what: &str, value: String| (format!("{prefix}{what}"), value);
    let prefix = format!("eq_dcpq:{name}:");
    let mut first = vec![
        line(&prefix, "type", "consumer".to_owned()),
        line(&prefix, "connected", link.connected.to_string()),
        line(&prefix, "connects", link.connects.to_string()),
        line(&prefix, "items_received", link.items.to_string()),
        line(&prefix, "total_bytes_received", link.bytes.to_string()),
    ];
    if let Some(why) = link.last_error {
        first.push(line(&prefix, "last_error", why));
    }
    let streams = link.vbuckets.into_iter().map(move |(vb, stream)| {
        let mut fields: StreamFields = vec![
            ("state", stream.phase.name().into()),
            ("last_received_seqno", stream.received.get().into()),
            ("cur_snapshot_end", stream.announced.get().into()),
            ("acked_seqno", stream.acknowledged.get().into()),
            ("rollbacks", stream.rollbacks.into()),
        ];
        if let Some(why) = stream.last_error {
            fields.push(("last_error", why.into()));
        }
        format.lines(&name, vb, fields)
    });
    std::iter::once(first).chain(streams)
}

fn enabled(is: bool) -> &'static str {
    if is { "enabled" } else { "disabled" }
}

/// Sums of connections.
#[derive(Clone, Copy, Default)]
struct StreamSums {
    count: u64,
    producers: u64,
    items_sent: u64,
    items_remaining: u64,
    bytes: u64,
    backlog: u64,
}

impl StreamSums {
    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.producers += other.producers;
        self.items_sent += other.items_sent;
        self.items_remaining += other.items_remaining;
        self.bytes += other.bytes;
        self.backlog += other.backlog;
    }

    fn show(&self, name: &str, each: AddStat<'_>) {
        for (what, value) in [
            ("count", self.count),
            ("producer_count", self.producers),
            ("items_sent", self.items_sent),
            ("items_remaining", self.items_remaining),
            ("total_bytes", self.bytes),
            ("total_backlog_size", self.backlog),
        ] {
            each(&format!("{name}:{what}"), &value.to_string());
        }
    }
}

/// `dcpagg`: sums over the connections whose names are equal in front of a separator.
pub(super) fn sums(
    shared: &ServerContext,
    bucket: &Bucket,
    separator: Option<&str>,
    each: AddStat<'_>,
) {
    let separator = separator.unwrap_or(SEPARATOR);
    let prefix = |name: &str| {
        let end = name.find(separator).unwrap_or(name.len());
        name[..end].to_owned()
    };
    let mut sums: BTreeMap<String, StreamSums> = BTreeMap::new();
    for connection in shared.dcp.of(bucket.name()) {
        let figures = connection.producer;
        sums.entry(prefix(&connection.name))
            .or_default()
            .add(StreamSums {
                count: 1,
                producers: 1,
                items_sent: figures.items,
                bytes: figures.bytes,
                ..StreamSums::default()
            });
    }
    for stream in bucket.dcp().stream_figures() {
        sums.entry(prefix(&stream.connection))
            .or_default()
            .add(StreamSums {
                items_remaining: stream.remaining,
                backlog: stream.buffered_bytes,
                ..StreamSums::default()
            });
    }
    for link in links(shared, bucket) {
        sums.entry("replication".to_owned())
            .or_default()
            .add(StreamSums {
                count: 1,
                bytes: link.bytes,
                ..StreamSums::default()
            });
    }
    let mut total = StreamSums::default();
    for (name, sum) in &sums {
        sum.show(name, each);
        total.add(*sum);
    }
    total.show(":total", each);
}

/// `dcp-vbtakeover VB NAME`: the number of items that the stream of the connection NAME has still to send, or would
/// send from the beginning.
///
/// # Errors
/// `Invalid` without arguments, `NotMyVbucket` for a vBucket that this node does not have.
pub(super) fn takeover(
    shared: &ServerContext,
    bucket: &Bucket,
    vb: Option<&str>,
    name: Option<&str>,
    each: AddStat<'_>,
) -> StatStep {
    let (Some(vb), Some(name)) = (vb, name) else {
        return Err(CommandFailure::new(
            Status::Invalid,
            "the arguments must be the number of a vBucket and the name of a connection",
        ));
    };
    let vb = vbucket_number(vb)?;
    let figures = bucket.vbucket_figures(vb).ok_or(Status::NotMyVbucket)?;
    let streams = bucket.dcp().stream_figures();
    let stream = streams
        .into_iter()
        .find(|it| it.vb == vb && it.connection == name);
    let documents = figures.documents as u64;
    let file = bucket.file_figures(vb).ok().flatten();
    let deleted = file.map_or(0, |file| file.deleted);
    let is_open = || {
        shared
            .dcp
            .of(bucket.name())
            .iter()
            .any(|it| it.name == name)
    };
    let (status, on_disk, in_memory, estimate) = match stream {
        Some(stream) => {
            let of_file = stream.state == StreamState::Backfilling;
            let (on_disk, in_memory) = if of_file {
                (stream.remaining, 0)
            } else {
                (0, stream.remaining)
            };
            (stream.state.name(), on_disk, in_memory, stream.remaining)
        }
        None => {
            let status = if is_open() {
                "stream_does_not_exist"
            } else {
                "connection_does_not_exist"
            };
            (status, 0, 0, documents + deleted)
        }
    };
    each("name", name);
    each("status", status);
    for (name, value) in [
        ("estimate", estimate),
        ("backfillRemaining", on_disk),
        ("chk_items", in_memory),
        ("vb_items", documents),
        ("on_disk_deletes", deleted),
    ] {
        each(name, &value.to_string());
    }
    Ok(None)
}

/// A topology, in the format of SET_VBUCKET.
fn topology_text(topology: &Topology) -> String {
    let chain = |chain: &[Option<kedge_bucket::NodeName>]| -> Vec<Option<String>> {
        let name = |name: &kedge_bucket::NodeName| name.as_str().to_owned();
        chain.iter().map(|node| node.as_ref().map(name)).collect()
    };
    let chains: Vec<_> = topology.chains().map(chain).collect();
    serde_json::to_string(&chains).unwrap_or_default()
}

/// `durability-monitor`: the SyncWrites of a vBucket.
pub(super) fn monitor(figures: &VbFigures, each: AddStat<'_>) {
    let vb = figures.vb;
    let durability = &figures.durability;
    let mut show = |what: &str, value: &str| each(&format!("vb_{vb}:{what}"), value);
    show("state", super::stat_lines::state_name(figures));
    show("high_prepared_seqno", &durability.high_prepared.to_string());
    show(
        "high_completed_seqno",
        &durability.high_completed.to_string(),
    );
    show("num_tracked", &durability.tracked.to_string());
    if let Some((first, last)) = durability.tracked_range {
        show("first_tracked_seqno", &first.to_string());
        show("last_tracked_seqno", &last.to_string());
    }
    counts(durability, &mut show);
    if let Some(topology) = &durability.topology {
        show("replication_topology", &topology_text(topology));
    }
    for (node, seqno) in &durability.acknowledged {
        let node = node.as_str();
        show(
            &format!("replication_chain:{node}:acked_seqno"),
            &seqno.to_string(),
        );
    }
}

fn counts(durability: &DurabilityFigures, show: &mut dyn FnMut(&str, &str)) {
    for (what, counts) in [
        ("accepted", &durability.accepted),
        ("committed", &durability.committed),
        ("aborted", &durability.aborted),
    ] {
        show(&format!("num_{what}"), &counts.sum().to_string());
        for (level, count) in [
            ("majority", counts.majority),
            (
                "majority_and_persist_on_active",
                counts.majority_and_persist_on_active,
            ),
            ("persist_to_majority", counts.persist_to_majority),
        ] {
            show(&format!("num_{what}:{level}"), &count.to_string());
        }
    }
    let alone = durability.committed_not_durable;
    show("num_committed_not_durable", &alone.to_string());
}

/// `vbucket-durability-state`: the progress of the SyncWrites of vBuckets.
pub(super) fn state(figures: &VbFigures, each: AddStat<'_>) {
    let vb = figures.vb;
    let durability = &figures.durability;
    each(&format!("vb_{vb}"), super::stat_lines::state_name(figures));
    let mut show = |what: &str, value: &str| each(&format!("vb_{vb}:{what}"), value);
    if let Some(topology) = &durability.topology {
        show("topology", &topology_text(topology));
    }
    show("high_prepared_seqno", &durability.high_prepared.to_string());
    show(
        "high_completed_seqno",
        &durability.high_completed.to_string(),
    );
}
