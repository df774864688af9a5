//! HELLO.

use kedge_protocol::binary::commands::Hello;
use kedge_protocol::binary::{Feature, Features};
use kedge_types::Datatype;

use super::context::{CommandContext, CommandOutcome};
use crate::histogram::HistogramFormat;
use crate::session::CommandFailure;

/// The features that are granted on request. Features that the server does not serve yet are left out, as clients would
/// use them.
const GRANTED: Features = Features::of(&[
    Feature::TcpNodelay,
    Feature::MutationSeqno,
    Feature::Xattr,
    Feature::Xerror,
    Feature::SelectBucket,
    Feature::Snappy,
    Feature::Json,
    Feature::Duplex,
    Feature::ClustermapChangeNotification,
    Feature::UnorderedExecution,
    Feature::Tracing,
    Feature::AltRequestSupport,
    Feature::SyncReplication,
    Feature::Collections,
    Feature::SnappyEverywhere,
    Feature::PreserveTtl,
    Feature::VAttr,
    Feature::SubdocCreateAsDeleted,
    Feature::SubdocDocumentMacroSupport,
    Feature::SubdocReplaceBodyWithXattr,
    Feature::SubdocReplicaRead,
    Feature::SubdocAllowsAccessOnMultipleXattrKeys,
    Feature::SubdocBinaryXattr,
    Feature::GetClusterConfigWithKnownVersion,
    Feature::DedupeNotMyVbucketClustermap,
    Feature::ClustermapChangeNotificationBrief,
    Feature::RangeScanIncludeXattr,
    Feature::SubdocAllowReplicaReadOnDeletedDocs,
    Feature::GetRandomKeyIncludeXattr,
    Feature::MutateWithMeta,
    Feature::DcpSkipDeletesInInitialBackfill,
]);

pub(super) fn hello(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let hello = Hello::decode(command.request)?;
    let granted = hello.features.intersection(GRANTED);
    if !hello.agent.is_empty() {
        tracing::debug!(
            peer = %command.session.peer,
            agent = %hello.agent.escape_ascii(),
            features = ?granted,
            "hello"
        );
    }
    let mut list = Vec::new();
    granted.encode(&mut list);
    command.session.protocol.features = granted;
    // `cbstats` parses histograms by the names of their lines, and fails at one in JSON.
    let wants_lines = hello.agent.windows(6).any(|part| part == b"cbstat");
    command.session.protocol.histograms = if wants_lines {
        HistogramFormat::Lines
    } else {
        HistogramFormat::Json
    };
    command.composer.value(Datatype::RAW, &list, command.out);
    Ok(CommandOutcome::Replied)
}
