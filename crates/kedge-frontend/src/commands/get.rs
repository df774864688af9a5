//! GET, GETQ, GETK, GETKQ, GET_REPLICA, GET_EX, GET_EX_REPLICA.

use kedge_bucket::DocumentRef;
use kedge_protocol::binary::commands::Get;
use kedge_protocol::binary::{Feature, Features, Opcode};
use kedge_types::Status;

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights};

/// The features of a client that reads every value as it is stored.
const WHOLE: Features = Features::of(&[Feature::SnappyEverywhere, Feature::Xattr, Feature::Json]);

pub(super) fn get(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let Get { key } = Get::decode(command.request)?;
    let echoed = match command.opcode {
        Opcode::Getk | Opcode::Getkq => key,
        _ => &[],
    };
    let target = command
        .session
        .target(command.request, key, Rights::READ, &mut command.key)?;
    let ctx = command.turn.ctx();
    let read = target.read(command.session);
    let outcome = target.bucket.documents().get(ctx, &read, |document| {
        command.composer.shown(document, echoed, command.out)
    })?;
    command.composed(outcome, echoed)
}

/// GET_REPLICA: reads from a replica vBucket.
pub(super) fn replica(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let Get { key } = Get::decode(command.request)?;
    let target = command
        .session
        .target(command.request, key, Rights::READ, &mut command.key)?;
    let ctx = command.turn.ctx();
    let read = target.read(command.session);
    let outcome = target
        .bucket
        .documents()
        .get_replica(ctx, &read, |document| {
            command.composer.shown(document, &[], command.out)
        })?;
    command.composed(outcome, &[])
}

impl CommandContext<'_, '_, '_> {
    /// The privileges to read documents as they are stored, with their extended attributes.
    ///
    /// # Errors
    /// `NotSupported` if the client did not negotiate the features for that.
    pub(super) fn whole_documents(&self) -> Result<Rights, CommandFailure> {
        if !self.session.protocol.features.contains_all(WHOLE) {
            let context = "SnappyEverywhere, XATTR and JSON were not all negotiated";
            return Err(CommandFailure::new(Status::NotSupported, context));
        }
        Ok(Rights::READ.and(Rights::READ_SYSTEM))
    }
}

/// GET_EX and GET_EX_REPLICA: reads a document as it is stored, with its extended attributes.
pub(super) fn whole(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let Get { key } = Get::decode(command.request)?;
    let needed = command.whole_documents()?;
    let target = command
        .session
        .target(command.request, key, needed, &mut command.key)?;
    let ctx = command.turn.ctx();
    let read = target.read(command.session);
    let (composer, out) = (&command.composer, &mut *command.out);
    let show = |document: DocumentRef<'_>| {
        composer.whole_document(document.item, document.cas, &[], out);
        Ok(None)
    };
    let outcome = match command.opcode {
        Opcode::GetExReplica => target.bucket.documents().get_replica(ctx, &read, show)?,
        _ => target.bucket.documents().get(ctx, &read, show)?,
    };
    command.composed(outcome, &[])
}
