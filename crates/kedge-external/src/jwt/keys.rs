//! The keys of issuers: fetched when they are needed, kept for a while.
//!
//! Invariants:
//! * An issuer is asked once at a time, and not again within [`FETCH_PAUSE_MS`]: tokens with invented keys do not become requests.
//! * Keys that cannot be fetched again are used for [`STALE_MS_MAX`] at most.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::JwkSet;
use kedge_auth::JwtIssuer;
use kedge_node::http_client::HttpClient;
use kedge_sync::{RankedMutex, ranks::TokenKeys};
use kedge_tls::{ServiceTrust, service_config};
use tokio::sync::Mutex;

use super::verify::{UnverifiedToken, read_keys};

/// The time after which keys are fetched again.
const FRESH_MS: u64 = 3_600_000;
/// The pause between two attempts.
const FETCH_PAUSE_MS: u64 = 10_000;
/// The longest time for which keys are used without a successful attempt.
const STALE_MS_MAX: u64 = 24 * 3_600_000;
/// The timeout of connecting, and of each wait for the reply.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);

/// The keys of one issuer.
#[derive(Default)]
pub(crate) struct IssuerKeys {
    keys: Option<Arc<JwkSet>>,
    fetched_ms: u64,
    tried_ms: Option<u64>,
}

impl IssuerKeys {
    /// Returns the keys that are known, unless they are too old.
    fn known(&self, now_ms: u64) -> Option<&Arc<JwkSet>> {
        let age = now_ms.saturating_sub(self.fetched_ms);
        self.keys.as_ref().filter(|_| age < STALE_MS_MAX)
    }

    /// Returns whether the issuer is to be asked, as the keys are old or lack that of a token.
    fn is_due(&self, has_key: bool, now_ms: u64) -> bool {
        let age = now_ms.saturating_sub(self.fetched_ms);
        let is_wanted = !has_key || age >= FRESH_MS;
        let pause = self.tried_ms.map(|tried| now_ms.saturating_sub(tried));
        is_wanted && pause.is_none_or(|pause| pause >= FETCH_PAUSE_MS)
    }

    fn fetched(&mut self, keys: Result<JwkSet, String>, now_ms: u64) -> Result<(), String> {
        self.tried_ms = Some(now_ms);
        self.keys = Some(Arc::new(keys?));
        self.fetched_ms = now_ms;
        Ok(())
    }
}

/// The place of keys, and the authorities of its certificate.
type KeysPlace = (String, String);

/// The keys of all issuers.
#[derive(Default)]
pub(crate) struct KeyRing {
    issuers: RankedMutex<TokenKeys, HashMap<KeysPlace, Arc<Mutex<IssuerKeys>>>>,
}

impl KeyRing {
    /// Returns the keys of an issuer, which it is asked for if that of the token is not known.
    ///
    /// # Errors
    /// The reason why there are none.
    pub(crate) async fn keys_for(
        &self,
        token: &UnverifiedToken<'_>,
        issuer: &JwtIssuer,
        now_ms: u64,
    ) -> Result<Arc<JwkSet>, String> {
        let Some(uri) = &issuer.jwks_uri else {
            let keys = issuer.jwks.clone().unwrap_or_default();
            let keys = serde_json::from_value(keys).map_err(|error| error.to_string());
            return keys.map(Arc::new);
        };
        let entry = self.entry(uri, issuer);
        let mut known = entry.lock().await;
        let has_key = known
            .known(now_ms)
            .is_some_and(|keys| token.key(keys).is_some());
        if known.is_due(has_key, now_ms) {
            let (uri, cacert) = (uri.clone(), issuer.cacert.clone());
            let fetched = tokio::task::spawn_blocking(move || fetch(&uri, cacert.as_deref())).await;
            let fetched = fetched.unwrap_or_else(|error| Err(error.to_string()));
            if let Err(error) = known.fetched(fetched, now_ms) {
                let issuer = &issuer.name;
                tracing::error!(issuer, %error, "cannot fetch the keys of an issuer of tokens");
            }
        }
        let keys = known.known(now_ms).cloned();
        keys.ok_or_else(|| "the keys of the issuer could not be fetched".to_owned())
    }

    fn entry(&self, uri: &str, issuer: &JwtIssuer) -> Arc<Mutex<IssuerKeys>> {
        let key = (uri.to_owned(), issuer.cacert.clone().unwrap_or_default());
        let mut issuers = self.issuers.lock();
        // Those of former settings would add up.
        if issuers.len() >= 2 * kedge_auth::JWT_ISSUERS_MAX && !issuers.contains_key(&key) {
            issuers.clear();
        }
        issuers.entry(key).or_default().clone()
    }
}

/// Fetches the keys of an issuer.
fn fetch(uri: &str, cacert: Option<&str>) -> Result<JwkSet, String> {
    let (host, port, path) = parts_of(uri).ok_or("jwksUri is no https URI")?;
    let trust = cacert.map_or(ServiceTrust::System, ServiceTrust::Pem);
    let tls = service_config(&trust).map_err(|error| error.to_string())?;
    let client = HttpClient::anonymous(host, port)
        .over_tls(tls)
        .within(FETCH_TIMEOUT);
    let reply = client.send("GET", path, "application/json", b"");
    let reply = reply.map_err(|error| error.to_string())?;
    if !reply.is_success() {
        return Err(format!("{uri} answers with status {}", reply.code));
    }
    read_keys(&reply.body).map_err(|error| format!("{uri} has no keys: {error}"))
}

/// Returns host, port and path of an https URI.
fn parts_of(uri: &str) -> Option<(&str, u16, &str)> {
    let rest = uri.strip_prefix("https://")?;
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    };
    let is_odd = |c: char| c.is_whitespace() || c.is_control() || "@?#".contains(c);
    if authority.contains(is_odd) || path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, port.strip_prefix(':'))
        }
        None => match authority.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Ok(443), str::parse).ok()?;
    (!host.is_empty()).then_some((host, port, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_keys_have_host_port_and_path() {
        for (uri, expected) in [
            ("https://a.org/keys?x=1", Some(("a.org", 443, "/keys?x=1"))),
            ("https://a.org", Some(("a.org", 443, "/"))),
            ("https://127.0.0.1:8443/k", Some(("127.0.0.1", 8_443, "/k"))),
            ("https://[::1]:8443/k", Some(("::1", 8_443, "/k"))),
            ("http://a.org/", None),
            ("https://u@a.org/", None),
            ("https:///k", None),
            ("https://a.org:x/", None),
            ("https://a.org/a b\r\nX: y", None),
        ] {
            assert_eq!(parts_of(uri), expected, "{uri}");
        }
    }

    #[test]
    fn issuer_is_asked_for_unknown_keys_and_old_ones_with_pauses() {
        let mut keys = IssuerKeys::default();
        let some = || JwkSet { keys: Vec::new() };
        assert!(keys.is_due(false, 0));
        keys.fetched(Err("down".to_owned()), 0).unwrap_err();
        assert!(!keys.is_due(false, FETCH_PAUSE_MS - 1));
        assert!(keys.is_due(false, FETCH_PAUSE_MS));
        keys.fetched(Ok(some()), FETCH_PAUSE_MS).unwrap();
        assert!(!keys.is_due(true, FETCH_PAUSE_MS + FRESH_MS - 1));
        assert!(keys.is_due(true, FETCH_PAUSE_MS + FRESH_MS));
        assert!(
            !keys.is_due(false, 2 * FETCH_PAUSE_MS - 1),
            "an invented key"
        );
        assert!(keys.is_due(false, 2 * FETCH_PAUSE_MS));
        // Old keys are used while new ones cannot be fetched, for a while.
        keys.fetched(Err("down".to_owned()), FRESH_MS * 2)
            .unwrap_err();
        assert!(keys.known(FETCH_PAUSE_MS + STALE_MS_MAX - 1).is_some());
        assert!(keys.known(FETCH_PAUSE_MS + STALE_MS_MAX).is_none());
    }
}
