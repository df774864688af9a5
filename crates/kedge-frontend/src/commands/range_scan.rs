//! RANGE_SCAN_CREATE, RANGE_SCAN_CONTINUE, RANGE_SCAN_CANCEL.

use kedge_bucket::{
    Completion, Item, ScanBound, ScanEnd, ScanFound, ScanLimits, ScanPart, ScanRequest,
    ScanRequirements, ScanSelection,
};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::range_scan::{
    Bound, RangeScanCancel, RangeScanContinue, RangeScanCreate, ScanDocument, ScanKind,
    encode_record_kind, push_scan_key,
};
use kedge_protocol::binary::{Feature, Response};
use kedge_types::{Datatype, Status};

use super::complete::{logical, unexpected};
use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Composer, ReplyKind, Rights};

pub(super) fn create(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = RangeScanCreate::decode(command.request)?;
    let mut needed = Rights::READ;
    if wire.include_xattrs {
        if !command.session.protocol.features.contains(Feature::Xattr) {
            let context = "extended attributes were not negotiated";
            return Err(CommandFailure::new(Status::NotSupported, context));
        }
        needed = needed.and(Rights::READ_SYSTEM);
    }
    let bucket = command.session.collection(wire.collection, needed)?;
    let request = ScanRequest {
        collection: wire.collection,
        selection: match wire.kind {
            ScanKind::Range { start, end } => ScanSelection::Range {
                start: bound(start),
                end: bound(end),
            },
            ScanKind::Sampling { seed, samples } => ScanSelection::Sample {
                seed,
                count: samples,
            },
        },
        key_only: wire.key_only,
        with_xattrs: wire.include_xattrs,
        requirements: wire.snapshot.map(|snapshot| ScanRequirements {
            uuid: snapshot.vb_uuid,
            seqno: snapshot.seqno,
            seqno_exists: snapshot.seqno_exists,
            timeout_ms: snapshot.timeout_ms,
        }),
        name: wire.name.unwrap_or_default(),
    };
    let cookie = command.session.next_cookie();
    let ctx = command.turn.ctx();
    bucket
        .scans()
        .create_scan(ctx, command.request.vb, request, cookie)?;
    Ok(command.park_as(ReplyKind::ScanCreated))
}

fn bound(Bound { key, exclusive }: Bound) -> ScanBound {
    ScanBound { key, exclusive }
}

pub(super) fn go_on(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = RangeScanContinue::decode(command.request)?;
    let bucket = command.session.bucket(Rights::READ)?;
    let limits = ScanLimits {
        items: wire.items_max,
        ms: wire.time_ms_max,
        bytes: wire.bytes_max,
    };
    let cookie = command.session.next_cookie();
    let ctx = command.turn.ctx();
    bucket
        .scans()
        .continue_scan(ctx, command.request.vb, &wire.id.0, limits, cookie)?;
    Ok(command.park_as(ReplyKind::ScanPart))
}

pub(super) fn cancel(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = RangeScanCancel::decode(command.request)?;
    let bucket = command.session.bucket(Rights::READ)?;
    bucket.scans().cancel_scan(command.request.vb, &wire.id.0)?;
    Ok(command.success())
}

/// Returns true if this is a part of the answer, and the command continues.
pub(crate) const fn is_partial(completion: &Completion) -> bool {
    matches!(
        completion,
        Completion::Scanned {
            result: Ok(ScanPart { end: None, .. })
        }
    )
}

/// Answers RANGE_SCAN_CREATE.
///
/// # Errors
/// The status of the failure.
pub(super) fn created(
    composer: &Composer,
    completion: Completion,
    out: &mut Output,
) -> Result<(), Status> {
    match completion {
        Completion::ScanMade { result } => composer.value(Datatype::RAW, &result?, out),
        other => return Err(unexpected(other)),
    }
    Ok(())
}

/// Composes a part of the results of a scan.
///
/// # Errors
/// The status of the failure; `Internal` if a document cannot be inflated.
pub(super) fn part(
    composer: &Composer,
    completion: Completion,
    out: &mut Output,
) -> Result<(), Status> {
    let Completion::Scanned { result } = completion else {
        return Err(unexpected(completion));
    };
    let ScanPart { found, end } = result?;
    let mut value = Vec::new();
    let has_documents = match &found {
        ScanFound::Keys(keys) => {
            keys.iter()
                .for_each(|key| push_scan_key(logical(key), &mut value));
            false
        }
        ScanFound::Documents { items, with_xattrs } => {
            for item in items {
                push_document(composer, item, *with_xattrs, &mut value)?;
            }
            true
        }
    };
    let status = match end {
        None => Status::Success,
        Some(ScanEnd::More) => Status::RangeScanMore,
        Some(ScanEnd::Complete) => Status::RangeScanComplete,
    };
    Response {
        extras: &encode_record_kind(has_documents),
        value: &value,
        ..composer.response(status)
    }
    .write(out.buffer());
    Ok(())
}

fn push_document(
    composer: &Composer,
    item: &Item,
    with_xattrs: bool,
    out: &mut Vec<u8>,
) -> Result<(), Status> {
    let (value, datatype) = composer.plain_document(item, with_xattrs)?;
    ScanDocument {
        flags: item.flags(),
        expiry: item.expiry(),
        seqno: item.seqno(),
        cas: item.cas(),
        datatype,
        key: logical(item.key()),
        value: &value,
    }
    .encode(out);
    Ok(())
}
