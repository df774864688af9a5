//! Failures of commands, and the replies to them.

use kedge_bucket::Bucket;
use kedge_cluster::host_text;
use kedge_node::audit::{AuditEvent, EventKind};
use kedge_node::output::Output;
use kedge_protocol::binary::{
    ConnectionKind, Feature, Remap, Response, remap_without_xerror, write_error_context,
    write_unknown_manifest_entity,
};
use kedge_types::{Datatype, Status};

use super::{Composer, Flow, NegotiatedProtocol, Session};
use crate::server_context::ServerContext;

/// The failure of a command. The context is for people: it names the error in the request, and no user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommandFailure {
    pub(crate) status: Status,
    pub(crate) context: &'static str,
}

impl CommandFailure {
    /// A collection in which the user has no privilege is answered like one that does not exist.
    pub(crate) const HIDDEN: Self =
        Self::new(Status::UnknownCollection, "the user may do nothing there");

    /// A scope in which the user has no privilege is answered like one that does not exist.
    pub(crate) const HIDDEN_SCOPE: Self =
        Self::new(Status::UnknownScope, "the user may do nothing there");

    pub(crate) const fn new(status: Status, context: &'static str) -> Self {
        Self { status, context }
    }
}

impl From<Status> for CommandFailure {
    fn from(status: Status) -> Self {
        Self {
            status,
            context: "",
        }
    }
}

impl Session {
    /// Composes the reply to a failed command. Closes the connection if the client would not understand any reply.
    pub(crate) fn fail(
        &mut self,
        shared: &ServerContext,
        composer: &Composer,
        failure: CommandFailure,
        out: &mut Output,
    ) -> Flow {
        let is_hidden =
            failure == CommandFailure::HIDDEN || failure == CommandFailure::HIDDEN_SCOPE;
        if failure.status == Status::AccessDenied || is_hidden {
            self.audit_denied(shared, composer, failure);
        }
        // Changes are sent without further commands: they must not go on without a login.
        if failure.status == Status::AuthStale && self.dcp.is_dcp() {
            return Flow::Close;
        }
        let status = match self.protocol.wire_status(failure.status) {
            Remap::Send(status) => status,
            Remap::Close => return Flow::Close,
        };
        if composer.is_quiet_about(status) {
            return Flow::Next;
        }
        if self.kind() == ConnectionKind::Memcached
            && !self.protocol.features.contains(Feature::Json)
        {
            Response {
                value: memcached_text(status).as_bytes(),
                ..composer.response(status)
            }
            .write(out.buffer());
            return Flow::Next;
        }
        match status {
            Status::NotMyVbucket => self.not_my_vbucket(shared, composer, out),
            Status::UnknownCollection | Status::UnknownScope => {
                let uid = self
                    .bucket
                    .as_ref()
                    .map(|bucket| bucket.collections().manifest().uid.0);
                let body = write_unknown_manifest_entity(None, uid.unwrap_or_default());
                self.protocol.json_body(composer, status, &body, out);
            }
            _ if failure.context.is_empty() => composer.response(status).write(out.buffer()),
            _ => {
                let body = write_error_context(failure.context, None);
                self.protocol.json_body(composer, status, &body, out);
            }
        }
        Flow::Next
    }

    /// Writes the refusal of a user to the audit log. Refusals before a login have no user.
    #[cold]
    fn audit_denied(&self, shared: &ServerContext, composer: &Composer, failure: CommandFailure) {
        let Some(user) = self.login.user() else {
            return;
        };
        shared.users.audit().put(&AuditEvent {
            peer: Some(self.peer),
            local: Some(self.local),
            bucket: self.bucket.as_deref().map(Bucket::name),
            request: composer.opcode.map_or("", |opcode| opcode.name()),
            reason: failure.context,
            ..AuditEvent::new(EventKind::Denied, user)
        });
    }

    /// Composes the reply with the cluster map, unless the client negotiated deduplication and has the map.
    fn not_my_vbucket(&mut self, shared: &ServerContext, composer: &Composer, out: &mut Output) {
        let response = composer.response(Status::NotMyVbucket);
        let host = host_text(self.local.ip());
        let config = self
            .bucket
            .as_deref()
            .map(Bucket::name)
            .and_then(|name| shared.cluster().bucket_config(name, &host));
        let Some(config) = config else {
            return response.write(out.buffer());
        };
        let features = self.protocol.features;
        let is_deduplicated = features.contains(Feature::DedupeNotMyVbucketClustermap);
        if is_deduplicated && self.map.has(config.revision) {
            return response.write(out.buffer());
        }
        self.map.note_sent(config.revision);
        let (value, datatype) = self.protocol.cluster_map_bytes(&config);
        Response {
            value,
            datatype,
            ..response
        }
        .write(out.buffer());
    }
}

impl NegotiatedProtocol {
    /// The status as this client understands it.
    fn wire_status(&self, status: Status) -> Remap {
        if self.features.contains(Feature::Xerror) {
            return Remap::Send(status);
        }
        let remap = remap_without_xerror(status, self.features.contains(Feature::Collections));
        // A plain memcached client takes any unknown status for an error, which suffices.
        match (remap, self.kind()) {
            (Remap::Close, ConnectionKind::Memcached) => Remap::Send(status),
            (remap, _) => remap,
        }
    }

    /// Composes an error reply. Only clients that negotiated JSON get the body.
    fn json_body(&self, composer: &Composer, status: Status, body: &str, out: &mut Output) {
        let response = composer.response(status);
        if self.features.contains(Feature::Json) {
            Response {
                datatype: Datatype::JSON,
                value: body.as_bytes(),
                ..response
            }
            .write(out.buffer());
        } else {
            response.write(out.buffer());
        }
    }
}

/// The body of an error reply, with memcached's text where memcached has the status, and else with the status's name.
const fn memcached_text(status: Status) -> &'static str {
    match status {
        Status::KeyNotFound => "Not found",
        Status::KeyExists => "Data exists for key.",
        Status::TooBig => "Too large.",
        Status::Invalid => "Invalid arguments",
        Status::NotStored => "Not stored.",
        Status::DeltaBadValue => "Non-numeric server-side value for incr or decr",
        Status::AuthError => "Auth failure.",
        Status::UnknownCommand => "Unknown command",
        Status::NoMemory => "Out of memory",
        other => other.name(),
    }
}
