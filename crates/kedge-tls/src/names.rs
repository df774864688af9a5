//! User names in client certificates.
//!
//! The rules are those of `/settings/clientCertAuth`: each has a place in the certificate (`path`), a beginning that the
//! name must have and that is removed (`prefix`), and characters of which the first one ends the user name
//! (`delimiter`). The first rule that matches wins; within a rule, the first name of the certificate.

use std::fmt;

use serde::{Deserialize, Serialize};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::error::NameError;

/// Longest user name.
const NAME_BYTES_MAX: usize = 128;
/// Most rules, as in `/settings/clientCertAuth`.
const RULES_MAX: usize = 10;

/// A place in a certificate that may have a user name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameSource {
    /// The common name of the subject.
    #[serde(rename = "subject.cn")]
    SubjectCn,
    /// A URI of the alternative names.
    #[serde(rename = "san.uri")]
    SanUri,
    /// A DNS name of the alternative names.
    #[serde(rename = "san.dnsname")]
    SanDns,
    /// A mail address of the alternative names.
    #[serde(rename = "san.email")]
    SanEmail,
}

impl NameSource {
    /// The name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SubjectCn => "subject.cn",
            Self::SanUri => "san.uri",
            Self::SanDns => "san.dnsname",
            Self::SanEmail => "san.email",
        }
    }
}

/// A rule for user names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameRule {
    /// The place in the certificate.
    pub path: NameSource,
    /// The beginning of the name, which is removed.
    #[serde(default)]
    pub prefix: String,
    /// Characters of which the first one ends the user name.
    #[serde(default)]
    pub delimiter: String,
}

/// The rules, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRules(Vec<NameRule>);

impl Default for NameRules {
    /// The whole common name.
    fn default() -> Self {
        Self(vec![NameRule {
            path: NameSource::SubjectCn,
            prefix: String::new(),
            delimiter: String::new(),
        }])
    }
}

impl NameRules {
    /// Checks rules: 1 to 10.
    ///
    /// # Errors
    /// The number is wrong.
    pub fn new(rules: Vec<NameRule>) -> Result<Self, String> {
        match rules.len() {
            1..=RULES_MAX => Ok(Self(rules)),
            other => Err(format!("expected 1 to {RULES_MAX} rules, not {other}")),
        }
    }

    /// Parses rules in JSON, such as `[{"path":"san.uri","prefix":"urn:","delimiter":"@"}]`, or the single word of a
    /// path, such as `subject.cn`.
    ///
    /// # Errors
    /// The reason why the text is not one of rules.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !text.starts_with('[') {
            let path = serde_json::from_value(text.into());
            let path =
                path.map_err(|_| "expected subject.cn, san.uri, san.dnsname, san.email, or JSON")?;
            let (prefix, delimiter) = (String::new(), String::new());
            return Ok(Self(vec![NameRule {
                path,
                prefix,
                delimiter,
            }]));
        }
        let rules = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Self::new(rules)
    }

    /// The rules.
    #[must_use]
    pub fn list(&self) -> &[NameRule] {
        &self.0
    }
}

impl fmt::Display for NameRules {
    /// Writes a form that [`NameRules::parse`] reads: the path alone if that is the whole rule, else JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.list()
            && only.prefix.is_empty()
            && only.delimiter.is_empty()
        {
            return f.write_str(only.path.name());
        }
        f.write_str(&serde_json::to_string(&self.0).map_err(|_| fmt::Error)?)
    }
}

/// Returns the user name of a client certificate.
///
/// # Errors
/// All of [`NameError`].
pub fn user_name(der: &[u8], rules: &NameRules) -> Result<String, NameError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| NameError::Malformed)?;
    let mut names = Vec::new();
    for rule in rules.list() {
        names.clear();
        collect(&certificate, rule.path, &mut names)?;
        if let Some(name) = names.iter().find_map(|name| matching(name, rule)) {
            return usable(name).map(str::to_owned);
        }
    }
    Err(NameError::NoMatch)
}

fn collect<'a>(
    certificate: &'a X509Certificate<'_>,
    source: NameSource,
    names: &mut Vec<&'a str>,
) -> Result<(), NameError> {
    if source == NameSource::SubjectCn {
        let common = certificate.subject().iter_common_name();
        names.extend(common.filter_map(|name| name.as_str().ok()));
        return Ok(());
    }
    let alternatives = certificate.subject_alternative_name();
    let Some(alternatives) = alternatives.map_err(|_| NameError::Malformed)? else {
        return Ok(());
    };
    for name in &alternatives.value.general_names {
        match (source, name) {
            (NameSource::SanUri, GeneralName::URI(text))
            | (NameSource::SanDns, GeneralName::DNSName(text))
            | (NameSource::SanEmail, GeneralName::RFC822Name(text)) => names.push(text),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the part of a name that a rule takes; `None` if the rule does not match.
fn matching<'a>(name: &'a str, rule: &NameRule) -> Option<&'a str> {
    let rest = name.strip_prefix(rule.prefix.as_str())?;
    let end = rest.find(|c| rule.delimiter.contains(c));
    let user = &rest[..end.unwrap_or(rest.len())];
    (!user.is_empty()).then_some(user)
}

fn usable(name: &str) -> Result<&str, NameError> {
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(NameError::Invalid);
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    /// Makes a certificate with a common name and alternative names.
    fn certificate(cn: &str, alternatives: &[SanType]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, cn);
        params.subject_alt_names = alternatives.to_vec();
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    fn rule(path: NameSource, prefix: &str, delimiter: &str) -> NameRule {
        NameRule {
            path,
            prefix: prefix.to_owned(),
            delimiter: delimiter.to_owned(),
        }
    }

    fn name(der: &[u8], rules: &[NameRule]) -> Result<String, NameError> {
        user_name(der, &NameRules::new(rules.to_vec()).unwrap())
    }

    #[test]
    fn user_name_comes_from_the_first_rule_that_matches() {
        use NameSource::{SanDns, SanEmail, SanUri, SubjectCn};

        let der = certificate(
            "cn.alice-1",
            &[
                SanType::DnsName("www.bob.example".try_into().unwrap()),
                SanType::DnsName("app.carol.example".try_into().unwrap()),
                SanType::URI("urn:kedge:dave@x".try_into().unwrap()),
                SanType::Rfc822Name("erin@example.org".try_into().unwrap()),
            ],
        );
        for (rules, expected) in [
            (vec![rule(SubjectCn, "", "")], Ok("cn.alice-1")),
            (vec![rule(SubjectCn, "cn.", "-")], Ok("alice")),
            (vec![rule(SubjectCn, "cn.", "@-l")], Ok("a")),
            (vec![rule(SanDns, "app.", ".")], Ok("carol")),
            (vec![rule(SanUri, "urn:kedge:", "@")], Ok("dave")),
            (vec![rule(SanEmail, "", "@")], Ok("erin")),
            // The prefix does not match, so the next rule is tried.
            (
                vec![rule(SanUri, "spiffe:", ""), rule(SanEmail, "", "@")],
                Ok("erin"),
            ),
            (
                vec![rule(SanEmail, "", "@"), rule(SubjectCn, "", "")],
                Ok("erin"),
            ),
            // Nothing is left of it.
            (vec![rule(SanEmail, "erin", "@")], Err(NameError::NoMatch)),
            (vec![rule(SubjectCn, "CN.", "")], Err(NameError::NoMatch)),
        ] {
            assert_eq!(name(&der, &rules), expected.map(str::to_owned), "{rules:?}");
        }
    }

    #[test]
    fn names_that_no_user_has_are_refused() {
        let rules = [rule(NameSource::SubjectCn, "", "")];
        for cn in ["admin\0.evil", "two\nlines", "\u{7f}", &"x".repeat(129)] {
            assert_eq!(
                name(&certificate(cn, &[]), &rules),
                Err(NameError::Invalid),
                "{cn:?}"
            );
        }
        assert_eq!(
            name(&certificate(&"x".repeat(128), &[]), &rules)
                .unwrap()
                .len(),
            128
        );
        assert_eq!(name(b"", &rules), Err(NameError::Malformed));
    }

    #[test]
    fn rules_are_read_from_json_or_a_path() {
        let rules = NameRules::parse("san.dnsname").unwrap();
        assert_eq!(rules.list(), [rule(NameSource::SanDns, "", "")]);
        let text = r#"[{"path":"san.uri","prefix":"urn:","delimiter":"@"},{"path":"subject.cn"}]"#;
        let rules = NameRules::parse(text).unwrap();
        assert_eq!(rules.list().len(), 2);
        assert_eq!(NameRules::parse(&rules.to_string()), Ok(rules));
        let path = NameRules::default().to_string();
        assert_eq!(NameRules::parse(&path), Ok(NameRules::default()));
        for wrong in ["", "cn", "[]", "[{}]", r#"[{"path":"subject.cn","x":1}]"#] {
            assert!(NameRules::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn hostile_names_never_panic(
            cn in any::<String>(),
            prefix in any::<String>(),
            delimiter in any::<String>(),
            cut in any::<prop::sample::Index>(),
            flip in any::<(prop::sample::Index, u8)>(),
        ) {
            let mut der = certificate(&cn, &[]);
            let rules = [rule(NameSource::SubjectCn, &prefix, &delimiter), rule(NameSource::SanUri, "", "")];
            if let Ok(user) = name(&der, &rules) {
                prop_assert!(!user.is_empty() && user.len() <= NAME_BYTES_MAX);
                prop_assert!(!user.chars().any(|c| c.is_control() || delimiter.contains(c)));
            }
            let at = flip.0.index(der.len());
            der[at] ^= flip.1;
            let _ = name(&der, &rules);
            der.truncate(cut.index(der.len()));
            let _ = name(&der, &rules);
        }
    }
}
