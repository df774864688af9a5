//! TLS of management: handshakes, certificates that change, and their REST interface.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Bytes;
use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_node::audit::{AuditEvent, EventKind};
use kedge_node::users::Users;
use kedge_tls::rustls;
use kedge_tls::{
    CertificateInfo, ClientCerts, ClientDemand, FailureReason, NameError, ServerTls, TlsError,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::certificates;
use super::reply::{EarlyReply, Handled, ok, ok_typed};
use super::request_context::{RequestContext, ShownCertificate};

/// The pause between two looks whether a file of TLS has changed.
const FILE_CHECK_PAUSE: Duration = Duration::from_secs(10);

/// The type of certificates in PEM.
const PEM: &str = "text/plain; charset=utf-8";

/// A handshake that is not over. If it is dropped, because the client was too slow or made room for another, it counts as
/// failed.
struct PendingHandshake<'t>(Option<&'t ServerTls>);

impl PendingHandshake<'_> {
    fn end(mut self) {
        self.0 = None;
    }
}

impl Drop for PendingHandshake<'_> {
    fn drop(&mut self) {
        if let Some(tls) = self.0 {
            tls.metrics().failure(FailureReason::Closed);
        }
    }
}

/// Runs the handshake of a connection, and returns the owner of the client's certificate.
///
/// # Errors
/// The reason why there is no connection. It is counted.
pub(super) async fn handshake(
    stream: TcpStream,
    tls: &ServerTls,
) -> Result<(TlsStream<TcpStream>, ShownCertificate), String> {
    let pending = PendingHandshake(Some(tls));
    let failed = |reason, why: String| {
        tls.metrics().failure(reason);
        why
    };
    let accepted = TlsAcceptor::from(tls.config()).accept(stream).await;
    pending.end();
    let stream = accepted.map_err(|error| failed(reason_of(&error), error.to_string()))?;
    let (_, session) = stream.get_ref();
    let user = match tls.user_of(session).and_then(not_reserved) {
        Ok(user) => user.map(Arc::from),
        // The client may have a password.
        Err(_) if tls.client_certs() == ClientCerts::Optional => None,
        Err(error) => return Err(failed(FailureReason::NoUserName, error.to_string())),
    };
    let is_resumed = session.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
    tls.metrics().handshake(is_resumed);
    let is_of_node = tls.is_node(session);
    Ok((stream, ShownCertificate { user, is_of_node }))
}

/// Refuses the names of the server's own users: nodes log in to each other with the secret of the cluster, and a CA of
/// clients must not be able to make a node.
fn not_reserved(user: Option<String>) -> Result<Option<String>, NameError> {
    match user {
        Some(user) if kedge_auth::is_reserved(&user) => Err(NameError::Invalid),
        user => Ok(user),
    }
}

/// Returns the reason of an error of a handshake.
fn reason_of(error: &io::Error) -> FailureReason {
    let of_tls = error
        .get_ref()
        .and_then(|it| it.downcast_ref::<rustls::Error>());
    of_tls.map_or(FailureReason::Closed, FailureReason::of)
}

/// Loads the files of TLS again whenever one of them has changed, which the audit log gets to know.
pub(super) async fn follow_files(tls: ServerTls, users: Arc<Users>) {
    loop {
        tokio::time::sleep(FILE_CHECK_PAUSE).await;
        let checked = tls.clone();
        let check = move || checked.reload_if_changed(SystemTime::now());
        match tokio::task::spawn_blocking(check).await {
            Ok(Ok(true)) => users.audit().put(&AuditEvent {
                request: "changed files",
                ..AuditEvent::new(EventKind::CertificateReloaded, "")
            }),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => tracing::error!(
                %error,
                "the changed TLS files cannot be used; connections go on with the ones from before"
            ),
            Err(_) => return,
        }
    }
}

impl RequestContext {
    fn tls(&self) -> Result<&ServerTls, EarlyReply> {
        let tls = self.state.parts.tls.as_ref();
        tls.ok_or_else(|| EarlyReply::text(StatusCode::NOT_FOUND, "This node does not serve TLS."))
    }
}

/// `GET /kedge/tls`: the certificate of this node.
pub(crate) async fn status(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&certificates::own(call.tls()?))
}

/// Returns the reply to a reload.
fn reloaded(result: Result<(), TlsError>) -> Result<(), EarlyReply> {
    result.map_err(|error| refused(&error.to_string()))
}

/// Loads all files of TLS again, for the user of the request.
async fn reload(call: &RequestContext) -> Result<ServerTls, EarlyReply> {
    call.caller.require(Privilege::Admin, None)?;
    let tls = call.tls()?.clone();
    let reloading = tls.clone();
    reloaded(call.blocking(move |_| reloading.reload()).await?)?;
    Ok(tls)
}

/// `POST /node/controller/reloadCertificate`.
pub(crate) async fn reload_certificate(call: RequestContext) -> Handled {
    reload(&call).await?;
    ok(&json!({ "warnings": [] }))
}

/// `POST /node/controller/loadTrustedCAs`.
pub(crate) async fn load_trusted_cas(call: RequestContext) -> Handled {
    let tls = reload(&call).await?;
    ok(&trusted(&tls)?)
}

/// `GET /pools/default/trustedCAs`.
pub(crate) async fn trusted_cas(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok(&trusted(call.tls()?)?)
}

/// `GET /pools/default/certificate`: the CA of this node, for clients, if the chain that they receive has it.
pub(crate) async fn certificate(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    ok_typed(PEM, call.tls()?.authority_pem())
}

/// `POST /controller/regenerateCertificate`: a new CA of `--tls auto`.
pub(crate) async fn regenerate_certificate(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let tls = call.tls()?.clone();
    let renewing = tls.clone();
    let renewed = call.blocking(move |_| renewing.regenerate(SystemTime::now()));
    match renewed.await? {
        Ok(true) => ok_typed(PEM, tls.authority_pem()),
        Ok(false) => Err(refused(
            "the certificate is not one of --tls auto: replace its files and reload them",
        )),
        Err(error) => Err(EarlyReply::failed("make a certificate", &error)),
    }
}

/// `DELETE /pools/default/trustedCAs/ID`. The CAs are those of files that belong to the operator.
pub(crate) async fn remove_trusted_ca(call: RequestContext, Path(id): Path<String>) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let all = trusted(call.tls()?)?;
    let id = id.parse::<usize>().ok();
    let Some(found) = id.and_then(|id| all.get(id)) else {
        return Err(EarlyReply::no_such_resource());
    };
    let file = found["loadFile"].as_str().unwrap_or_default();
    Err(refused(&format!(
        "the CA is in {file}: remove it there, and reload the files"
    )))
}

/// Returns 400 with a text in JSON.
fn refused(why: &str) -> EarlyReply {
    EarlyReply::json(StatusCode::BAD_REQUEST, &Value::from(why))
}

/// `GET /settings/clientCertAuth`: the demand for client certificates.
pub(crate) async fn client_cert_auth(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    match &call.state.parts.tls {
        Some(tls) => ok(&tls.demand()),
        None => ok(&json!({ "state": "disable", "prefixes": [] })),
    }
}

/// `POST /settings/clientCertAuth`: another demand, for new connections.
pub(crate) async fn set_client_cert_auth(call: RequestContext, body: Bytes) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let tls = call.tls()?.clone();
    let demand = ClientDemand::parse(&body).map_err(|why| refused(&why))?;
    let set = call.blocking(move |_| tls.set_demand(&demand, SystemTime::now()));
    match set.await? {
        Ok(true) => Ok(EarlyReply::text(StatusCode::ACCEPTED, "")),
        Ok(false) => Ok(EarlyReply::text(StatusCode::OK, "")),
        Err(error) => Err(refused(&error.to_string())),
    }
}

/// Returns the CAs of client certificates, as the files have them.
fn trusted(tls: &ServerTls) -> Result<Value, EarlyReply> {
    let mut all = Vec::new();
    for path in &tls.options().client_auth.ca {
        let found = CertificateInfo::of_file(path);
        let found = found.map_err(|error| EarlyReply::failed("read the CAs", &error))?;
        for certificate in found {
            let (not_before, not_after) = certificate.validity_text();
            all.push(json!({
                "id": all.len(),
                "subject": certificate.subject,
                "notBefore": not_before,
                "notAfter": not_after,
                "type": "uploaded",
                "fingerprint": certificate.fingerprint,
                "loadFile": path.display().to_string(),
                "warnings": [],
            }));
        }
    }
    Ok(all.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use kedge_cluster::CLUSTER_USER;
    use kedge_tls::{TlsOptions, ensure_auto};

    use super::*;

    /// A client that was too slow, or had to make room for another one, was counted nowhere.
    #[test]
    fn handshake_that_the_server_gives_up_counts_as_failed() {
        let dir = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let made = ensure_auto(dir.path(), &["localhost".to_owned()], now).unwrap();
        let options = TlsOptions {
            certificate: made.certificate,
            key: made.key,
            ..TlsOptions::default()
        };
        let tls = ServerTls::open(options, now).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        let failures = |reason| tls.metrics().failures(reason);
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let _silent = std::net::TcpStream::connect(address).unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            tokio::select! {
                biased;
                _ = handshake(stream, &tls) => panic!("the client says nothing"),
                () = tokio::task::yield_now() => {}
            }
            assert_eq!(failures(FailureReason::Closed), 1);
            // One that has failed for another reason is counted for that.
            let mut other = std::net::TcpStream::connect(address).unwrap();
            other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            handshake(stream, &tls).await.map(drop).unwrap_err();
        });
        assert_eq!(failures(FailureReason::Closed), 1);
        assert_eq!(failures(FailureReason::NotTls), 1);
    }

    #[test]
    fn certificate_cannot_name_the_user_of_the_nodes() {
        let named = |name: &str| not_reserved(Some(name.to_owned()));
        assert_eq!(named(CLUSTER_USER), Err(NameError::Invalid));
        assert_eq!(named("alice"), Ok(Some("alice".to_owned())));
        assert_eq!(not_reserved(None), Ok(None));
    }
}
