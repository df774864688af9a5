//! Composition of the replies of parked commands that a bucket has completed.
//!
//! A completion has a document, a number or a status, and never the command: no command is executed twice.

use kedge_bucket::{Completion, Item, KeyFigures, Meta, Mutated};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::{encode_counter, push_key};
use kedge_protocol::binary::{Feature, Opcode};
use kedge_types::{Cas, Datatype, Status, decode_leb128};

use super::{file_copy, key_stats, lock, meta, range_scan, subdoc, with_meta};
use crate::session::{CommandFailure, Composer, ReplyKind, inflated};

/// Composes the reply of a parked command that a bucket has completed.
///
/// # Errors
/// The failure that the reply has instead of success.
pub(crate) fn complete(
    composer: &Composer,
    kind: &ReplyKind,
    completion: Completion,
    out: &mut Output,
) -> Result<(), CommandFailure> {
    match kind {
        ReplyKind::Mutation => {
            let (mutated, _) = mutation(completion)?;
            composer.mutation(&mutated, &[], out);
        }
        ReplyKind::CasOnly => composer.cas(mutation(completion)?.0.cas, out),
        ReplyKind::ReturnMeta => {
            let (mutated, item) = mutation(completion)?;
            let item = item.ok_or(Status::Internal)?;
            with_meta::compose(composer, &mutated, &item.meta(), out);
        }
        ReplyKind::Counter => {
            let (mutated, number) = counter(completion)?;
            composer.mutation(&mutated, &encode_counter(number), out);
        }
        ReplyKind::Document => {
            let (item, cas) = document(completion)?;
            composer.document(&item, cas, reply_key(composer, &item), out)?;
        }
        ReplyKind::WholeDocument => {
            let (item, cas) = document(completion)?;
            composer.whole_document(&item, cas, reply_key(composer, &item), out);
        }
        ReplyKind::Locked => {
            let result = document(completion);
            let (item, cas) = result.map_err(|status| lock::soften(composer.features, status))?;
            composer.document(&item, cas, &[], out)?;
        }
        ReplyKind::Unlocked => {
            status_of(completion).map_err(|status| lock::soften(composer.features, status))?;
            composer.success(out);
        }
        ReplyKind::Meta { with_datatype } => {
            meta::compose(composer, &meta_of(completion)?, *with_datatype, out);
        }
        ReplyKind::KeyStats => {
            key_stats::compose(composer, &key_figures(completion)?, out);
        }
        ReplyKind::Lookup(looking) => subdoc::complete_lookup(composer, looking, completion, out)?,
        ReplyKind::SubdocMutation(changing) => {
            subdoc::changed(composer, changing, completion, out)?;
        }
        ReplyKind::ScanCreated => range_scan::created(composer, completion, out)?,
        ReplyKind::ScanPart => range_scan::part(composer, completion, out)?,
        ReplyKind::FileRead => file_copy::read(composer, completion, out)?,
        ReplyKind::ScanFailed => return Err(Status::Internal.into()),
        ReplyKind::Keys => {
            let mut value = Vec::new();
            for key in keys(completion)? {
                push_key(&key, &mut value);
            }
            composer.value(Datatype::RAW, &value, out);
        }
        ReplyKind::StatusOnly
        | ReplyKind::Login
        | ReplyKind::Observe(_)
        | ReplyKind::Text(_)
        | ReplyKind::TextDocument => {
            status_of(completion)?;
            composer.success(out);
        }
    }
    Ok(())
}

/// The result of a mutation, with its document.
///
/// # Errors
/// The status of the failure; `Internal` if the completion is not that of a mutation.
pub(crate) fn mutation(completion: Completion) -> Result<(Mutated, Option<Item>), Status> {
    match completion {
        Completion::SyncWrite { result, item } => Ok((result?, item)),
        Completion::Counter { result } => Ok((result?.0, None)),
        other => Err(unexpected(other)),
    }
}

/// The result of a counter. A SyncWrite that was committed comes with its document, which holds the number.
///
/// # Errors
/// As [`mutation`].
pub(crate) fn counter(completion: Completion) -> Result<(Mutated, u64), Status> {
    match completion {
        Completion::Counter { result } => result,
        Completion::SyncWrite { result, item } => {
            let mutated = result?;
            let item = item.ok_or(Status::Internal)?;
            let text = inflated(&item)?;
            let number = std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok());
            Ok((mutated, number.ok_or(Status::Internal)?))
        }
        other => Err(unexpected(other)),
    }
}

/// The document that was read, or touched.
///
/// # Errors
/// As [`mutation`].
pub(crate) fn document(completion: Completion) -> Result<(Item, Cas), Status> {
    match completion {
        Completion::Read { result } => result,
        Completion::SyncWrite { result, item } => {
            let mutated = result?;
            Ok((item.ok_or(Status::Internal)?, mutated.cas))
        }
        other => Err(unexpected(other)),
    }
}

/// The metadata that was read.
///
/// # Errors
/// As [`mutation`].
pub(crate) fn meta_of(completion: Completion) -> Result<Meta, Status> {
    match completion {
        Completion::Meta { result } => result,
        other => Err(unexpected(other)),
    }
}

fn key_figures(completion: Completion) -> Result<KeyFigures, Status> {
    match completion {
        Completion::Key { result } => result,
        other => Err(unexpected(other)),
    }
}

fn keys(completion: Completion) -> Result<Vec<Box<[u8]>>, Status> {
    match completion {
        Completion::Keys { result } => result,
        other => Err(unexpected(other)),
    }
}

pub(crate) fn status_of(completion: Completion) -> Result<(), Status> {
    match completion {
        Completion::Persisted(result) => result,
        Completion::SyncWrite { result, .. } => result.map(drop),
        Completion::Counter { result } => result.map(drop),
        Completion::Read { result } => result.map(drop),
        Completion::Meta { result } => result.map(drop),
        Completion::Key { result } => result.map(drop),
        Completion::Observed { result } => result.map(drop),
        Completion::Keys { result } => result.map(drop),
        Completion::ScanMade { result } => result.map(drop),
        Completion::Scanned { result } => result.map(drop),
        Completion::FileRead { result } => result.map(drop),
    }
}

/// The status of a completion of the wrong kind: its failure if it has one, as a bucket that closes completes all
/// commands alike.
pub(crate) fn unexpected(completion: Completion) -> Status {
    status_of(completion).err().unwrap_or(Status::Internal)
}

/// The key in the reply: as the client sent it, or without the collection if the client sent none.
fn reply_key<'i>(composer: &Composer, item: &'i Item) -> &'i [u8] {
    match composer.opcode.map(Opcode::base) {
        Some(Opcode::Getk | Opcode::Gatk) if composer.features.contains(Feature::Collections) => {
            item.key()
        }
        Some(Opcode::Getk | Opcode::Gatk | Opcode::GetRandomKey) => logical(item.key()),
        _ => &[],
    }
}

/// A stored key without its collection.
pub(super) fn logical(stored: &[u8]) -> &[u8] {
    decode_leb128(stored).map_or(stored, |(_, len)| &stored[len..])
}
