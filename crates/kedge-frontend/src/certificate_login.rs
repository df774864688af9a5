//! Logins by client certificates, at the end of TLS handshakes.
//!
//! The TLS library has verified the certificate. A client whose certificate names a user of the server is logged in as
//! that user, and needs no SASL. One whose certificate names none may log in by SASL, unless certificates are mandatory.
//! Another node of the cluster, too, logs in by SASL: its certificate makes it nobody, but may be required for the login.

use kedge_cluster::CLUSTER_USER;
use kedge_node::audit::EventKind;
use kedge_tls::ClientCerts;
use kedge_tls::rustls::CommonState;

use crate::commands::{audit_login, on_user_changed};
use crate::metrics::Metrics;
use crate::server_context::ServerContext;
use crate::session::Session;

/// The reason to refuse the connection of a client because of its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CertificateRefusal {
    /// It names no user of the server, and one is required.
    #[error("the client certificate names no user of the server")]
    NoUser,
    /// All connections of clients are taken.
    #[error("there are too many connections of clients")]
    TooManyClients,
}

/// Logs the client in as the user that its certificate names, if it has one.
///
/// # Errors
/// The connection is to be closed.
pub(crate) fn log_in_by_certificate(
    session: &mut Session,
    shared: &ServerContext,
    tls: &CommonState,
) -> Result<(), CertificateRefusal> {
    let Some(server) = &shared.tls else {
        return Ok(());
    };
    session.login.set_of_node(server.is_node(tls));
    match server.user_of(tls) {
        Ok(None) => Ok(()),
        Ok(Some(user)) if is_user(shared, &user) => log_in(session, shared, &user),
        Ok(Some(user)) => {
            let reason = "the client certificate names an unknown user";
            without_user(session, shared, server.client_certs(), (&user, reason))
        }
        Err(error) => {
            let reason = error.to_string();
            without_user(session, shared, server.client_certs(), ("", &reason))
        }
    }
}

/// Returns true if clients may log in as this user by a certificate. Nodes have a password, and nobody else is one.
fn is_user(shared: &ServerContext, user: &str) -> bool {
    user != CLUSTER_USER && shared.users.read().exists(user)
}

fn log_in(
    session: &mut Session,
    shared: &ServerContext,
    user: &str,
) -> Result<(), CertificateRefusal> {
    let kind = session.kind();
    if !session.login.take_client_slot(shared, user, kind) {
        return Err(CertificateRefusal::TooManyClients);
    }
    audit_login(session, shared, EventKind::LoggedIn, user, "");
    session.login.log_in(user, None);
    on_user_changed(session, shared);
    Ok(())
}

/// Reports a certificate without a user.
fn without_user(
    session: &Session,
    shared: &ServerContext,
    mode: ClientCerts,
    (user, reason): (&str, &str),
) -> Result<(), CertificateRefusal> {
    tracing::info!(peer = %session.peer, user, reason, "a login by client certificate failed");
    audit_login(session, shared, EventKind::LoginFailed, user, reason);
    Metrics::count(&shared.metrics.auth_errors);
    match mode {
        ClientCerts::Mandatory => Err(CertificateRefusal::NoUser),
        _ => Ok(()),
    }
}
