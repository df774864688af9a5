//! `GET /settings/security`: what of the original's settings holds on this node. The settings of the node determine it.

use kedge_auth::Privilege;
use kedge_tls::MinVersion;
use serde_json::json;

use super::reply::{Handled, ok};
use super::request_context::RequestContext;

/// `GET /settings/security`. Without TLS there are no fields of it.
pub(crate) async fn get(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    let mut document = json!({
        "disableWWWAuthenticate": false,
        "uiSessionTimeout": call.state.parts.session_timeout.as_secs(),
    });
    if let Some(tls) = &call.state.parts.tls {
        let options = tls.options();
        document["tlsMinVersion"] = match options.min_version {
            MinVersion::Tls12 => "tlsv1.2".into(),
            MinVersion::Tls13 => "tlsv1.3".into(),
        };
        document["cipherSuites"] = options.cipher_suites.clone().into();
        document["honorCipherOrder"] = options.honor_cipher_order.into();
    }
    ok(&document)
}
