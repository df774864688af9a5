//! The login of a connection: its user, the SASL exchange in progress, and its place in the lists of connections with and
//! without a login.

use std::net::IpAddr;
use std::sync::Arc;

use kedge_auth::{ExternalGrants, Roles, ServerSession, UserStore};
use kedge_cluster::CLUSTER_USER;
use kedge_protocol::binary::ConnectionKind;
use kedge_tls::ServerTls;
use kedge_types::Now;

use crate::cookie::ConnectionId;
use crate::inbox::Port;
use crate::metrics::ClientSlot;
use crate::server_context::ServerContext;
use crate::unauthenticated::{UnauthenticatedConnections, UnauthenticatedEntry};

/// The login of a connection.
pub(crate) struct LoginState {
    /// True if commands need a login.
    is_required: bool,
    /// The user that logged in.
    user: Option<Box<str>>,
    /// The rights that an authority has shown of an external user at the login.
    grants: Option<Arc<ExternalGrants>>,
    /// The time at which the login ends, in nanoseconds of the monotonic clock.
    ends_ns: u64,
    /// True if the user is one of the memcached port's `authfile`.
    is_of_auth_file: bool,
    /// True if the client has shown a certificate of a node of the cluster.
    is_of_node: bool,
    /// The SASL exchange in progress.
    exchange: Option<Box<ServerSession>>,
    /// The entry in the list of connections without a login, while it is there.
    unauthenticated: Option<UnauthenticatedEntry>,
    /// The slot among the clients that logged in.
    client_slot: Option<ClientSlot>,
}

impl LoginState {
    /// The state without a login.
    pub(crate) fn new(is_required: bool) -> Self {
        Self {
            is_required,
            user: None,
            grants: None,
            ends_ns: u64::MAX,
            is_of_auth_file: false,
            is_of_node: false,
            exchange: None,
            unauthenticated: None,
            client_slot: None,
        }
    }

    /// The user that logged in. A user of the `authfile` has the prefix `authfile:`.
    pub(crate) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The roles of the user that logged in, which may have changed since.
    pub(crate) fn roles(&self, users: &UserStore) -> Option<Roles> {
        let user = self.user()?;
        Some(users.roles_of_login(user, self.grants.as_deref()))
    }

    /// Returns true if commands on documents are allowed as far as the login is concerned. The memcached port needs no login
    /// by default, as only local clients reach it then.
    #[inline]
    pub(crate) fn is_authenticated(&self) -> bool {
        self.user.is_some() || !self.is_required
    }

    /// Returns true if a memcached client has the privileges of every memcached client.
    pub(crate) fn is_memcached_guest(&self) -> bool {
        !self.is_required || self.is_of_auth_file
    }

    /// Notes whether the client has shown a certificate of a node of the cluster.
    pub(crate) fn set_of_node(&mut self, is_of_node: bool) {
        self.is_of_node = is_of_node;
    }

    /// Returns true if the user may be logged in as far as certificates of nodes are required.
    pub(crate) fn has_certificate_for(&self, user: &str, shared: &ServerContext) -> bool {
        let tls = shared.tls.as_ref();
        let is_required = tls.is_some_and(ServerTls::requires_node_certificates);
        user != CLUSTER_USER || !is_required || self.is_of_node
    }

    /// Keeps the SASL exchange for its next step.
    pub(crate) fn continue_exchange(&mut self, exchange: ServerSession) {
        self.exchange = Some(Box::new(exchange));
    }

    /// Takes the SASL exchange in progress.
    pub(crate) fn take_exchange(&mut self) -> Option<Box<ServerSession>> {
        self.exchange.take()
    }

    /// A user of the server has logged in, or an external one with these grants.
    pub(crate) fn log_in(&mut self, user: &str, grants: Option<Arc<ExternalGrants>>) {
        self.user = Some(user.into());
        self.grants = grants;
        self.ends_ns = u64::MAX;
        self.is_of_auth_file = false;
    }

    /// Ends the login with the token that gave it, if one did.
    pub(crate) fn end_with_token(&mut self, now: Now) {
        let ends_at_s = self.grants.as_ref().and_then(|it| it.expires_at_s);
        self.ends_ns = ends_at_s.map_or(u64::MAX, |ends_at_s| {
            let left_ns = ends_at_s
                .saturating_mul(1_000_000_000)
                .saturating_sub(now.unix_ns);
            now.mono_ns.saturating_add(left_ns)
        });
    }

    /// Returns true if the token of the login has expired.
    #[inline]
    pub(crate) fn has_expired(&self, now_ns: u64) -> bool {
        now_ns >= self.ends_ns
    }

    /// A user of the `authfile` has logged in.
    pub(crate) fn log_in_of_auth_file(&mut self, user: &str) {
        // A user of the server has no colon in its name, so the two cannot be confused.
        self.user = Some(format!("authfile:{user}").into());
        self.grants = None;
        self.ends_ns = u64::MAX;
        self.is_of_auth_file = true;
    }

    /// A login has failed: the connection has no user.
    pub(crate) fn log_out(&mut self) {
        self.exchange = None;
        self.user = None;
        self.grants = None;
        self.ends_ns = u64::MAX;
        self.is_of_auth_file = false;
    }

    /// Takes a client slot for a user that logs in; other nodes have slots of their own. Returns false when all are taken.
    pub(crate) fn take_client_slot(
        &mut self,
        shared: &ServerContext,
        user: &str,
        kind: ConnectionKind,
    ) -> bool {
        let is_client = user != CLUSTER_USER && kind == ConnectionKind::Couchbase;
        if !is_client {
            self.client_slot = None;
        } else if self.client_slot.is_none() {
            self.client_slot = ClientSlot::take(&shared.metrics, shared.limits.clients_max());
            return self.client_slot.is_some();
        }
        true
    }

    /// Adds the connection to the list of those without a login, or removes it, as its login requires. Returns true if the
    /// list has changed.
    pub(crate) fn update_list(
        &mut self,
        list: &UnauthenticatedConnections,
        from: IpAddr,
        port: Port,
        id: ConnectionId,
    ) -> bool {
        match self.unauthenticated {
            Some(_) if self.is_authenticated() => self.leave_list(list),
            None if !self.is_authenticated() => {
                self.unauthenticated = Some(list.enter(from, port, id));
            }
            _ => return false,
        }
        true
    }

    /// Removes the connection from the list of those without a login.
    pub(crate) fn leave_list(&mut self, list: &UnauthenticatedConnections) {
        if let Some(entry) = self.unauthenticated.take() {
            list.leave(entry);
        }
    }

    /// Returns true if the connection is in the list of those without a login.
    pub(crate) fn is_in_list(&self) -> bool {
        self.unauthenticated.is_some()
    }
}
