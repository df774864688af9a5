//! Tokens of external users: any text is refused by name, and none panics. With the key of a fixed issuer no mutation is accepted.

#![no_main]

use kedge_auth::{JwtSettings, bearer_token};
use kedge_external::jwt::{UnverifiedToken, read_keys};
use libfuzzer_sys::fuzz_target;

/// The public key of RFC 7517 appendix A.1.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"k",
    "x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}"#;

const SETTINGS: &str = r#"{"enabled":true,"issuers":[{"name":"i","audiences":["a"],"algorithms":["ES256","RS256","EdDSA"],
    "jwks":{"keys":[]}}]}"#;

fuzz_target!(|data: &[u8]| {
    let _ = read_keys(data);
    let _ = bearer_token(data);
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let settings: JwtSettings = serde_json::from_str(SETTINGS).expect("the settings are good");
    let keys = read_keys(KEYS.as_bytes()).expect("the keys are good");
    let Ok(token) = UnverifiedToken::read(text) else {
        return;
    };
    if let Ok(issuer) = token.issuer(&settings) {
        assert!(token.verify(issuer, &keys, 1_700_000_000).is_err());
    }
});
