//! COLLECTIONS_GET_MANIFEST, COLLECTIONS_GET_ID, COLLECTIONS_GET_SCOPE_ID.
//!
//! A scope or collection in which the user has no privilege is answered like a missing one.

use std::sync::Arc;

use kedge_cluster::manifest_json;
use kedge_protocol::binary::Response;
use kedge_protocol::binary::commands::{
    CollectionIdReply, GetCollectionId, GetManifest, GetScopeId, ScopeIdReply,
};
use kedge_types::{Datatype, Manifest, Scope, Status};

use super::context::{CommandContext, CommandOutcome};
use crate::session::{CommandFailure, Rights, Session};

/// The manifest of the selected bucket.
fn of_bucket(session: &Session) -> Result<Arc<Manifest>, CommandFailure> {
    Ok(session.bucket(Rights::ACCESS)?.collections().manifest())
}

pub(super) fn manifest(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    GetManifest::decode(command.request)?;
    let manifest = of_bucket(command.session)?;
    let json = manifest_json(&command.session.privileges.visible(&manifest));
    command
        .composer
        .value(Datatype::JSON, json.as_bytes(), command.out);
    Ok(CommandOutcome::Replied)
}

fn extras(command: &mut CommandContext<'_, '_, '_>, extras: &[u8]) -> CommandOutcome {
    let response = command.composer.response(Status::Success);
    Response { extras, ..response }.write(command.out.buffer());
    CommandOutcome::Replied
}

/// The scope of that name, if the user may see it.
fn scope_of<'m>(
    session: &Session,
    manifest: &'m Manifest,
    name: &[u8],
) -> Result<&'m Scope, CommandFailure> {
    let found = manifest
        .scopes
        .iter()
        .find(|scope| scope.name.as_bytes() == name);
    let unknown = CommandFailure::new(Status::UnknownScope, "there is no such scope");
    let scope = found.ok_or(unknown)?;
    if session.privileges.sees_scope(&scope.name) {
        Ok(scope)
    } else {
        Err(CommandFailure::HIDDEN_SCOPE)
    }
}

pub(super) fn id(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let path = GetCollectionId::decode(command.request)?;
    let manifest = of_bucket(command.session)?;
    let scope = scope_of(command.session, &manifest, path.scope)?;
    let mut collections = scope.collections.iter();
    let found = collections.find(|it| it.name.as_bytes() == path.collection);
    let unknown = CommandFailure::new(Status::UnknownCollection, "there is no such collection");
    let collection = found.ok_or(unknown)?;
    if !command
        .session
        .privileges
        .sees_collection(&scope.name, &collection.name)
    {
        return Err(CommandFailure::HIDDEN);
    }
    let reply = CollectionIdReply {
        manifest_uid: manifest.uid.0,
        collection: collection.id,
    };
    Ok(extras(command, &reply.encode()))
}

pub(super) fn scope_id(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let path = GetScopeId::decode(command.request)?;
    let manifest = of_bucket(command.session)?;
    let scope = scope_of(command.session, &manifest, path.scope)?;
    let reply = ScopeIdReply {
        manifest_uid: manifest.uid.0,
        scope: scope.id.0,
    };
    Ok(extras(command, &reply.encode()))
}
