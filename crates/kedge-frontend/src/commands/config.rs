//! SELECT_BUCKET, LIST_BUCKETS, GET_ERROR_MAP, GET_CLUSTER_CONFIG, and the cluster map that is pushed to clients.

use kedge_auth::Privilege;
use kedge_bucket::Bucket;
use kedge_cluster::{ConfigDocument, Revision, host_text};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::{GetClusterConfig, GetErrorMap, HeaderOnly, SelectBucket};
use kedge_protocol::binary::{
    self, ClustermapChangeNotification, ConnectionKind, Feature, Response,
};
use kedge_types::{Datatype, Status};
use std::sync::Arc;

use super::context::{CommandContext, CommandOutcome};
use crate::server_context::ServerContext;
use crate::session::{CommandFailure, Rights, Session};

/// SELECT_BUCKET. A bucket that does not exist is answered like one that the user may not use: SDKs take any other
/// status for "not there yet" and retry until they time out.
pub(super) fn select_bucket(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    const REFUSED: CommandFailure = CommandFailure::new(
        Status::AccessDenied,
        "there is no such bucket, or the user may not use it",
    );
    let select = SelectBucket::decode(command.request)?;
    let shared = command.turn.shared;
    let users = shared.users.read();
    let bucket = if select.name == SelectBucket::NO_BUCKET {
        None
    } else {
        let name = std::str::from_utf8(select.name).map_err(|_| REFUSED)?;
        let bucket = shared.registry.get(name).ok_or(REFUSED)?;
        let may = match (command.session.login.roles(&users), command.session.kind()) {
            (Some(roles), _) => Rights::of(&roles, Some(name)).allow(Rights::ACCESS),
            (None, ConnectionKind::Couchbase) => false,
            // Without a login, plain memcached clients have the bucket of their port only.
            (None, ConnectionKind::Memcached) => shared.memcached.bucket.as_deref() == Some(name),
        };
        if !may {
            return Err(REFUSED);
        }
        Some(bucket)
    };
    command.session.select_bucket(bucket, shared, &users);
    Ok(command.success())
}

pub(super) fn list_buckets(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    HeaderOnly::decode(command.request)?;
    let shared = command.turn.shared;
    let roles = command.session.login.roles(&shared.users.read());
    let seen = |name: &str| match &roles {
        Some(roles) => roles.allows(Privilege::Access, Some(name)),
        None => shared.memcached.bucket.as_deref() == Some(name),
    };
    let buckets = shared.registry.list();
    let names: Vec<&str> = buckets
        .iter()
        .map(|b| b.name())
        .filter(|name| seen(name))
        .collect();
    command
        .composer
        .value(Datatype::RAW, names.join(" ").as_bytes(), command.out);
    Ok(CommandOutcome::Replied)
}

pub(super) fn error_map(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = GetErrorMap::decode(command.request)?;
    let map = binary::error_map(wire.version).ok_or(Status::KeyNotFound)?;
    command
        .composer
        .value(Datatype::JSON, map.as_bytes(), command.out);
    Ok(CommandOutcome::Replied)
}

impl Session {
    /// The cluster map for this connection: that of its bucket, or the global one if no bucket was selected. A client whose
    /// bucket was dropped would take the global one for the map of the bucket.
    fn cluster_map(&self, shared: &ServerContext) -> Option<Arc<ConfigDocument>> {
        let host = host_text(self.local.ip());
        match self.bucket.as_deref().map(Bucket::name) {
            Some(bucket) => shared.cluster().bucket_config(bucket, &host),
            None if self.lost_bucket => None,
            None => Some(shared.cluster().global_config(&host)),
        }
    }
}

pub(super) fn cluster_config(
    command: &mut CommandContext<'_, '_, '_>,
) -> Result<CommandOutcome, CommandFailure> {
    let wire = GetClusterConfig::decode(command.request)?;
    let session = &mut *command.session;
    let config = session
        .cluster_map(command.turn.shared)
        .ok_or(Status::NoBucket)?;
    let known = wire.known.map(|(epoch, rev)| Revision { epoch, rev });
    session.map.note_announced(config.revision);
    if known.is_some_and(|known| known >= config.revision) {
        return Ok(command.success());
    }
    session.map.note_sent(config.revision);
    let (value, datatype) = session.protocol.cluster_map_bytes(&config);
    let response = command.composer.response(Status::Success);
    Response {
        value,
        datatype,
        ..response
    }
    .write(command.out.buffer());
    Ok(CommandOutcome::Replied)
}

/// Notifies a client of a new cluster map if it negotiated that; without the map if it negotiated the brief form, too.
/// A revision that the client knows is not sent.
pub(crate) fn push_map(session: &mut Session, shared: &ServerContext, out: &mut Output) {
    let features = session.protocol.features;
    let full = features.contains(Feature::ClustermapChangeNotification);
    let brief = features.contains(Feature::ClustermapChangeNotificationBrief);
    // A client that does not read its replies gets no notification; the next revision will do.
    let is_full = out.queued() > shared.limits.queued_bytes_max;
    if !session.login.is_authenticated() || !(full || brief) || is_full {
        return;
    }
    let Some(config) = session.cluster_map(shared) else {
        return;
    };
    if session.map.knows_of(config.revision) {
        return;
    }
    if brief {
        session.map.note_announced(config.revision);
    } else {
        session.map.note_sent(config.revision);
    }
    let (map, datatype) = session.protocol.cluster_map_bytes(&config);
    ClustermapChangeNotification {
        epoch: config.revision.epoch,
        rev: config.revision.rev,
        bucket: session
            .bucket
            .as_deref()
            .map_or(&[], |bucket| bucket.name().as_bytes()),
        map: (!brief).then_some(map),
        snappy: datatype.contains(Datatype::SNAPPY),
    }
    .write(0, out.buffer());
}
