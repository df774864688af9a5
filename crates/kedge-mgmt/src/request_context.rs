//! The context of a request for its handler.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use kedge_cluster::CLUSTER_USER;

use super::auth::Caller;
use super::backend::Buckets;
use super::form::{self, FormFields};
use super::reply::EarlyReply;
use super::slots::ConnectionSlot;
use super::state::HttpState;

/// The owner of the certificate that a client has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct ShownCertificate {
    /// The user that it names.
    pub(super) user: Option<Arc<str>>,
    /// True if it is one of a node of the cluster.
    pub(super) is_of_node: bool,
}

/// A connection as handlers see it.
#[derive(Clone, Debug)]
pub(crate) struct PeerConnection {
    /// The local address: documents contain this host, which the client can reach.
    pub(crate) local: SocketAddr,
    pub(super) slot: Arc<ConnectionSlot>,
    /// The client's certificate, on a connection of TLS.
    pub(super) certificate: ShownCertificate,
    /// The address of the client.
    pub(crate) peer: SocketAddr,
    pub(super) is_tls: bool,
}

/// One request: the caller, the host, and the shared state.
pub(crate) struct RequestContext {
    pub(crate) state: Arc<HttpState>,
    pub(crate) caller: Caller,
    pub(crate) connection: PeerConnection,
    /// The host for documents.
    pub(crate) host: String,
    /// The fields of the query.
    pub(crate) query: FormFields,
}

impl RequestContext {
    /// Runs blocking work on a thread where it delays nobody.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&HttpState) -> T + Send + 'static,
    ) -> Result<T, EarlyReply> {
        let state = self.state.clone();
        // Requests of nodes must not wait behind those of people, which may wait for them.
        let turn = match self.caller.id == CLUSTER_USER {
            true => None,
            false => state.people.clone().acquire_owned().await.ok(),
        };
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&state)
        });
        done.await
            .map_err(|error| EarlyReply::failed("finish the request", &error))
    }

    pub(crate) fn buckets(&self) -> &dyn Buckets {
        &*self.state.parts.buckets
    }
}

impl FromRequestParts<Arc<HttpState>> for RequestContext {
    type Rejection = EarlyReply;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &Arc<HttpState>,
    ) -> Result<Self, Self::Rejection> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let connection = parts.extensions.get::<PeerConnection>().cloned();
        let (Some(caller), Some(connection)) = (caller, connection) else {
            return Err(EarlyReply::unauthorized());
        };
        Ok(Self {
            state: state.clone(),
            caller,
            host: kedge_cluster::host_text(connection.local.ip()),
            connection,
            query: FormFields::parse(parts.uri.query().unwrap_or_default().as_bytes()),
        })
    }
}

impl FromRequest<Arc<HttpState>> for FormFields {
    type Rejection = EarlyReply;

    async fn from_request(request: Request, _: &Arc<HttpState>) -> Result<Self, Self::Rejection> {
        let body: Body = request.into_body();
        Ok(Self::parse(&form::read(body).await?))
    }
}
