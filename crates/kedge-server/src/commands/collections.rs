//! COLLECTIONS_GET_MANIFEST, COLLECTIONS_GET_ID, COLLECTIONS_GET_SCOPE_ID. There is the default collection, so far.

use kedge_cluster::{DEFAULT_MANIFEST_JSON, DEFAULT_MANIFEST_UID};
use kedge_protocol::binary::Response;
use kedge_protocol::binary::commands::{
    CollectionIdReply, GetCollectionId, GetManifest, GetScopeId, ScopeIdReply,
};
use kedge_types::{CollectionId, Datatype, Status};

use super::{Command, Done};
use crate::session::{Failure, Rights};

const DEFAULT: &[u8] = b"_default";

pub(super) fn manifest(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    GetManifest::decode(command.request)?;
    command.session.bucket(Rights::ACCESS)?;
    command.composer.value(
        Datatype::JSON,
        DEFAULT_MANIFEST_JSON.as_bytes(),
        command.out,
    );
    Ok(Done::Replied)
}

fn extras(command: &mut Command<'_, '_, '_>, extras: &[u8]) -> Done {
    let response = command.composer.response(Status::Success);
    Response { extras, ..response }.write(command.out.buffer());
    Done::Replied
}

pub(super) fn id(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let path = GetCollectionId::decode(command.request)?;
    command.session.bucket(Rights::ACCESS)?;
    if path.scope != DEFAULT {
        return Err(Status::UnknownScope.into());
    }
    if path.collection != DEFAULT {
        return Err(Status::UnknownCollection.into());
    }
    let reply = CollectionIdReply {
        manifest_uid: DEFAULT_MANIFEST_UID,
        collection: CollectionId::DEFAULT,
    };
    Ok(extras(command, &reply.encode()))
}

pub(super) fn scope_id(command: &mut Command<'_, '_, '_>) -> Result<Done, Failure> {
    let path = GetScopeId::decode(command.request)?;
    command.session.bucket(Rights::ACCESS)?;
    if path.scope != DEFAULT {
        return Err(Status::UnknownScope.into());
    }
    let reply = ScopeIdReply {
        manifest_uid: DEFAULT_MANIFEST_UID,
        scope: 0,
    };
    Ok(extras(command, &reply.encode()))
}
