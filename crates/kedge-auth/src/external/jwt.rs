//! The settings of issuers of tokens (JWT, RFC 7519), and the rights that the claims of a token give.
//!
//! Everything here is pure: the signature is checked elsewhere, times are arguments.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{ExternalGrants, check_external_name};
use crate::custom_role::CustomRoles;
use crate::error::AuthError;
use crate::roles::Roles;

/// The most issuers.
pub const JWT_ISSUERS_MAX: usize = 16;
/// The most rules of an issuer.
const RULES_MAX: usize = 256;
/// The longest token, in bytes: it has to fit into a SASL message and into a header.
pub const JWT_BYTES_MAX: usize = 16 << 10;

/// A signature algorithm (RFC 7518, RFC 8037). There are none with shared secrets: a public key must not become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JwtAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RS256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    RS384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    RS512,
    /// RSASSA-PSS with SHA-256.
    PS256,
    /// RSASSA-PSS with SHA-384.
    PS384,
    /// RSASSA-PSS with SHA-512.
    PS512,
    /// ECDSA with P-256 and SHA-256.
    ES256,
    /// ECDSA with P-384 and SHA-384.
    ES384,
    /// Ed25519.
    EdDSA,
}

/// A rule that gives rights for a value of the claim of groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JwtRule {
    /// The value; `*` at the end stands for any text.
    pub value: String,
    /// A local group whose roles the user has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Roles that the user has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles: Option<String>,
}

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JwtIssuer {
    /// The claim `iss` of its tokens.
    pub name: String,
    /// The allowed values of the claim `aud`; a token needs one of them.
    pub audiences: Vec<String>,
    /// The allowed algorithms.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The place of its keys (RFC 7517), an `https` URI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// Its keys, if they have no place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<Value>,
    /// The authorities of the certificate of `jwks_uri` as PEM; those of the system if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cacert: Option<String>,
    /// The claim with the name of the user.
    #[serde(default = "default_subject")]
    pub subject_claim: String,
    /// The claim with the groups of the user, a text or a list of texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_claim: Option<String>,
    /// The rights for values of that claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<JwtRule>,
    /// The difference of clocks that is tolerated, in seconds.
    #[serde(default = "default_leeway")]
    pub leeway_secs: u32,
    /// The longest time from a token's issue to its expiry, in seconds.
    #[serde(default = "default_lifetime")]
    pub lifetime_secs_max: u32,
}

fn default_subject() -> String {
    "sub".to_owned()
}

fn default_leeway() -> u32 {
    15
}

fn default_lifetime() -> u32 {
    86_400
}

/// The settings of tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JwtSettings {
    /// True if tokens are accepted.
    pub enabled: bool,
    /// The issuers.
    #[serde(default)]
    pub issuers: Vec<JwtIssuer>,
}

impl JwtSettings {
    /// Checks that the fields fit together. `custom` are the roles that administrators have defined.
    ///
    /// # Errors
    /// The reason why they do not.
    pub fn check(&self, custom: &CustomRoles) -> Result<(), String> {
        if self.enabled && self.issuers.is_empty() {
            return Err("there must be an issuer when tokens are enabled".to_owned());
        }
        if self.issuers.len() > JWT_ISSUERS_MAX {
            return Err(format!("there are more than {JWT_ISSUERS_MAX} issuers"));
        }
        let mut names = BTreeSet::new();
        for issuer in &self.issuers {
            let named = |why: &str| format!("issuer {:?}: {why}", issuer.name);
            issuer.check(custom).map_err(|why| named(&why))?;
            if !names.insert(&issuer.name) {
                return Err(named("it is there twice"));
            }
        }
        Ok(())
    }

    /// Checks that all roles of rules exist.
    pub(crate) fn check_roles(&self, custom: &CustomRoles) -> Result<(), AuthError> {
        let rules = self.issuers.iter().flat_map(|issuer| &issuer.rules);
        let mut roles = rules.filter_map(|rule| rule.roles.as_deref());
        roles.try_for_each(|roles| Roles::parse(roles, custom).map(drop))
    }

    /// Returns the name of an issuer with a rule that gives this role.
    pub(crate) fn issuer_with_role(&self, role: &str, custom: &CustomRoles) -> Option<&str> {
        let gives = |rule: &JwtRule| {
            let roles = rule.roles.as_deref();
            let roles = roles.map(|roles| Roles::parse(roles, custom));
            matches!(roles, Some(Ok(roles)) if roles.iter().any(|given| given.name() == role))
        };
        let mut issuers = self.issuers.iter();
        let issuer = issuers.find(|issuer| issuer.rules.iter().any(gives))?;
        Some(&issuer.name)
    }

    /// Returns the issuer with this name.
    #[must_use]
    pub fn issuer(&self, name: &str) -> Option<&JwtIssuer> {
        let mut issuers = self.issuers.iter();
        issuers.find(|issuer| self.enabled && issuer.name == name)
    }
}

impl JwtIssuer {
    fn check(&self, custom: &CustomRoles) -> Result<(), String> {
        let wrong = |why: &str| Err(why.to_owned());
        if self.name.is_empty() {
            return wrong("name is empty");
        }
        if self.audiences.is_empty() || self.audiences.iter().any(String::is_empty) {
            return wrong("audiences must name whom its tokens are for");
        }
        if self.algorithms.is_empty() {
            return wrong("algorithms must name those that are allowed");
        }
        match (&self.jwks_uri, &self.jwks) {
            (Some(uri), None) if !uri.starts_with("https://") => {
                return wrong("jwksUri must begin with https://");
            }
            (Some(_), None) | (None, Some(_)) => {}
            _ => return wrong("it needs either jwksUri or jwks"),
        }
        if self.subject_claim.is_empty() {
            return wrong("subjectClaim is empty");
        }
        if self.groups_claim.is_none() && !self.rules.is_empty() {
            return wrong("rules need groupsClaim");
        }
        if self.rules.len() > RULES_MAX {
            return Err(format!("it has more than {RULES_MAX} rules"));
        }
        for rule in &self.rules {
            let roles = rule.roles.as_ref();
            let roles = roles.map(|roles| Roles::parse(roles, custom));
            match (&rule.group, roles) {
                (Some(_), None) | (None, Some(Ok(_))) => {}
                (None, Some(Err(error))) => return Err(format!("rule {:?}: {error}", rule.value)),
                _ => return Err(format!("rule {:?} needs either group or roles", rule.value)),
            }
        }
        Ok(())
    }
}

/// The reason why the claims of a token give no login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClaimProblem {
    /// It is none of the claims' kind, or one that is needed is missing.
    #[error("a claim is missing or has another type")]
    Malformed,
    /// The token is for others.
    #[error("the token is for another audience")]
    Audience,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYet,
    /// The token lives for longer than is allowed.
    #[error("the token lives for too long")]
    LivesTooLong,
    /// The name of the user is none.
    #[error("the token names no possible user")]
    User,
}

/// Returns the user of a token and its rights, after its signature and issuer were checked. `now_s` is in seconds since 1970 (UTC).
///
/// # Errors
/// The first claim that is wrong.
pub fn login_of_claims(
    issuer: &JwtIssuer,
    claims: &Map<String, Value>,
    now_s: u64,
) -> Result<(String, ExternalGrants), ClaimProblem> {
    let texts = |claim: &str| texts_of(claims.get(claim));
    if !texts("aud")
        .iter()
        .any(|audience| issuer.audiences.contains(audience))
    {
        return Err(ClaimProblem::Audience);
    }
    let expires_at_s = check_times(issuer, claims, now_s)?;
    let user = claims.get(&issuer.subject_claim).and_then(Value::as_str);
    let user = user.ok_or(ClaimProblem::Malformed)?;
    check_external_name(user).map_err(|_| ClaimProblem::User)?;
    if crate::names::is_reserved(user) {
        return Err(ClaimProblem::User);
    }
    let mut grants = ExternalGrants {
        expires_at_s: Some(expires_at_s),
        ..ExternalGrants::default()
    };
    let groups = issuer
        .groups_claim
        .as_deref()
        .map(texts)
        .unwrap_or_default();
    for rule in issuer.rules.iter().filter(|rule| rule.fits(&groups)) {
        grants.groups.extend(rule.group.clone());
        grants.roles.extend(rule.roles.clone());
    }
    Ok((user.to_owned(), grants))
}

/// Checks the times of a token, and returns that of its end.
fn check_times(
    issuer: &JwtIssuer,
    claims: &Map<String, Value>,
    now_s: u64,
) -> Result<u64, ClaimProblem> {
    let time = |claim: &str| match claims.get(claim) {
        None => Ok(None),
        Some(time) => seconds(time).map(Some).ok_or(ClaimProblem::Malformed),
    };
    let leeway = u64::from(issuer.leeway_secs);
    let ends = time("exp")?.ok_or(ClaimProblem::Malformed)?;
    let ends = ends.saturating_add(leeway);
    if now_s >= ends {
        return Err(ClaimProblem::Expired);
    }
    let issued = time("iat")?;
    for begin in [time("nbf")?, issued].into_iter().flatten() {
        if begin > now_s.saturating_add(leeway) {
            return Err(ClaimProblem::NotYet);
        }
    }
    // Without the time of its issue a token counts as issued now.
    let lifetime = ends.saturating_sub(issued.unwrap_or(now_s));
    if lifetime > u64::from(issuer.lifetime_secs_max).saturating_add(leeway) {
        return Err(ClaimProblem::LivesTooLong);
    }
    Ok(ends)
}

/// Returns a time in whole seconds; tokens may have fractions (RFC 7519 section 2).
fn seconds(time: &Value) -> Option<u64> {
    let whole = time.as_u64();
    whole.or_else(|| {
        let time = time.as_f64().filter(|time| (0.0..1e15).contains(time))?;
        Some(time as u64)
    })
}

/// Returns the texts of a claim, which is one or a list of them.
fn texts_of(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(texts)) => {
            let texts = texts.iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        }
        _ => Vec::new(),
    }
}

impl JwtRule {
    fn fits(&self, groups: &[String]) -> bool {
        groups
            .iter()
            .any(|group| match self.value.strip_suffix('*') {
                Some(prefix) => group.starts_with(prefix),
                None => *group == self.value,
            })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn issuer() -> JwtIssuer {
        serde_json::from_value(json!({
            "name": "https://issuer.example.org",
            "audiences": ["kedge"],
            "algorithms": ["ES256"],
            "jwksUri": "https://issuer.example.org/keys",
            "groupsClaim": "groups",
            "rules": [
                { "value": "devs", "group": "developers" },
                { "value": "read-*", "roles": "data_reader[b]" },
            ],
        }))
        .unwrap()
    }

    fn claims(changed: &Value) -> Map<String, Value> {
        let mut claims = json!({
            "sub": "ada", "aud": "kedge", "iat": NOW - 5, "exp": NOW + 60, "groups": ["devs", "read-b"],
        });
        let all = claims.as_object_mut().unwrap();
        all.extend(changed.as_object().unwrap().clone());
        all.retain(|_, value| !value.is_null());
        all.clone()
    }

    #[test]
    fn claims_give_the_user_and_rights_by_rules() {
        let login = |changed: Value| login_of_claims(&issuer(), &claims(&changed), NOW);
        let (user, grants) = login(json!({})).unwrap();
        assert_eq!(user, "ada");
        assert_eq!(grants.groups.iter().collect::<Vec<_>>(), ["developers"]);
        assert_eq!(grants.roles.iter().collect::<Vec<_>>(), ["data_reader[b]"]);
        assert_eq!(grants.expires_at_s, Some(NOW + 75));
        let (_, grants) = login(json!({ "groups": "read-" })).unwrap();
        assert!(grants.groups.is_empty() && !grants.roles.is_empty());
        let (_, grants) = login(json!({ "groups": [7, "read"], "aud": ["x", "kedge"] })).unwrap();
        assert!(grants.groups.is_empty() && grants.roles.is_empty());
        assert!(login(json!({ "iat": null, "exp": NOW as f64 + 0.5 })).is_ok());
    }

    #[test]
    fn wrong_claims_are_refused() {
        for (changed, problem) in [
            (json!({ "aud": "other" }), ClaimProblem::Audience),
            (json!({ "aud": null }), ClaimProblem::Audience),
            (json!({ "exp": NOW - 15 }), ClaimProblem::Expired),
            (json!({ "exp": null }), ClaimProblem::Malformed),
            (json!({ "exp": "soon" }), ClaimProblem::Malformed),
            (json!({ "exp": -1 }), ClaimProblem::Malformed),
            (json!({ "nbf": NOW + 16 }), ClaimProblem::NotYet),
            (json!({ "iat": NOW + 16 }), ClaimProblem::NotYet),
            (json!({ "exp": NOW + 86_400 }), ClaimProblem::LivesTooLong),
            (
                json!({ "exp": NOW + 86_401, "iat": null }),
                ClaimProblem::LivesTooLong,
            ),
            (json!({ "exp": u64::MAX }), ClaimProblem::LivesTooLong),
            (json!({ "sub": null }), ClaimProblem::Malformed),
            (json!({ "sub": 7 }), ClaimProblem::Malformed),
            (json!({ "sub": "" }), ClaimProblem::User),
            (json!({ "sub": "kedge.cluster" }), ClaimProblem::User),
            (json!({ "sub": "^ada" }), ClaimProblem::User),
            (json!({ "sub": "a\nb" }), ClaimProblem::User),
        ] {
            let refused = login_of_claims(&issuer(), &claims(&changed), NOW);
            assert_eq!(refused, Err(problem), "{changed}");
        }
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        let good = JwtSettings {
            enabled: true,
            issuers: vec![issuer()],
        };
        let none = CustomRoles::new();
        assert_eq!(good.check(&none), Ok(()));
        let with = |change: &dyn Fn(&mut JwtIssuer)| {
            let mut settings = good.clone();
            change(&mut settings.issuers[0]);
            settings.check(&none).expect_err("the settings are wrong")
        };
        for (says, problem) in [
            ("audiences", with(&|it| it.audiences.clear())),
            ("algorithms", with(&|it| it.algorithms.clear())),
            (
                "https",
                with(&|it| it.jwks_uri = Some("http://x".to_owned())),
            ),
            ("either", with(&|it| it.jwks_uri = None)),
            ("either", with(&|it| it.jwks = Some(json!({})))),
            ("groupsClaim", with(&|it| it.groups_claim = None)),
            ("group or roles", with(&|it| it.rules[0].group = None)),
            (
                "unknown role",
                with(&|it| it.rules[1].roles = Some("king".to_owned())),
            ),
            ("name", with(&|it| it.name.clear())),
        ] {
            assert!(problem.contains(says), "{says}: {problem}");
        }
        let twice = JwtSettings {
            issuers: vec![issuer(), issuer()],
            ..good.clone()
        };
        assert!(twice.check(&none).unwrap_err().contains("twice"));
        let empty = JwtSettings {
            enabled: true,
            issuers: vec![],
        };
        assert!(empty.check(&none).is_err());
        // Neither exists as a setting.
        for algorithm in ["none", "HS256"] {
            assert!(serde_json::from_value::<JwtAlgorithm>(json!(algorithm)).is_err());
        }
    }
}
