//! The settings of a directory (LDAP), and the searches that they describe for a user.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

use super::escape::{escape_dn_value, escape_filter_value};

/// The filter of a search that names none.
const ANY_ENTRY: &str = "(objectClass=*)";

/// The protection of connections to a directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LdapEncryption {
    /// None: passwords cross the network as they are.
    #[default]
    None,
    /// TLS that begins after the connection, on the port of plain ones.
    StartTLSExtension,
    /// TLS from the first byte.
    TLS,
}

/// The rule that leads from the name of a user to the name of its entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum UserDnMapping {
    /// The name of the entry, with `%u` for the user.
    Template(String),
    /// A search that finds the entry.
    Query(String),
}

/// The settings of a directory, with the names and defaults of the original.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LdapSettings {
    /// True if the directory checks passwords of external users.
    pub authentication_enabled: bool,
    /// True if groups of the directory give rights to external users.
    pub authorization_enabled: bool,
    /// The hosts of the directory; each is tried until one answers.
    pub hosts: Vec<String>,
    /// The port of all hosts.
    pub port: u16,
    /// The protection of connections.
    pub encryption: LdapEncryption,
    /// True if the certificate of the directory is checked.
    pub server_cert_validation: bool,
    /// The authorities of the directory's certificate as PEM; those of the system if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cacert: Option<String>,
    /// The entry as which searches are made; empty for none.
    #[serde(rename = "bindDN")]
    pub bind_dn: String,
    /// The password of that entry.
    pub bind_pass: Zeroizing<String>,
    /// The rule for entries of users.
    #[serde(
        rename = "userDNMapping",
        default,
        skip_serializing_if = "Option::is_none"
    )]
    pub user_dn_mapping: Option<UserDnMapping>,
    /// The search for the groups of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups_query: Option<String>,
    /// True if groups of groups count.
    pub nested_groups_enabled: bool,
    /// The longest chain of groups of groups.
    pub nested_groups_max_depth: u8,
    /// The largest number of connections to the directory.
    pub max_parallel_connections: u16,
    /// The largest number of users whose logins are remembered.
    pub max_cache_size: u32,
    /// The time for which a login is remembered, in milliseconds.
    pub cache_value_lifetime: u32,
    /// The timeout of each request to the directory, in milliseconds.
    pub request_timeout: u32,
}

impl Default for LdapSettings {
    fn default() -> Self {
        Self {
            authentication_enabled: false,
            authorization_enabled: false,
            hosts: Vec::new(),
            port: 389,
            encryption: LdapEncryption::None,
            server_cert_validation: true,
            cacert: None,
            bind_dn: String::new(),
            bind_pass: Zeroizing::default(),
            user_dn_mapping: None,
            groups_query: None,
            nested_groups_enabled: false,
            nested_groups_max_depth: 10,
            max_parallel_connections: 100,
            max_cache_size: 10_000,
            cache_value_lifetime: 300_000,
            request_timeout: 5_000,
        }
    }
}

impl fmt::Debug for LdapSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LdapSettings")
            .field("hosts", &self.hosts)
            .field("port", &self.port)
            .field("encryption", &self.encryption)
            .field("bind_dn", &self.bind_dn)
            .finish_non_exhaustive()
    }
}

/// The reason why settings cannot work, for the field of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct SettingProblem {
    /// The name of the field, as in the original.
    pub field: &'static str,
    /// The reason.
    pub text: &'static str,
}

impl LdapSettings {
    /// Checks that the fields fit together.
    ///
    /// # Errors
    /// The first field that does not.
    pub fn check(&self) -> Result<(), SettingProblem> {
        let problem = |field, text| Err(SettingProblem { field, text });
        if (self.authentication_enabled || self.authorization_enabled) && self.hosts.is_empty() {
            return problem("hosts", "there must be a host when LDAP is enabled");
        }
        if self.authentication_enabled && self.user_dn_mapping.is_none() {
            return problem(
                "userDNMapping",
                "authentication needs a rule for entries of users",
            );
        }
        match &self.user_dn_mapping {
            Some(UserDnMapping::Template(template)) if !template.contains("%u") => {
                return problem("userDNMapping", "the template must contain %u");
            }
            Some(UserDnMapping::Query(query)) => match LdapQuery::parse(query) {
                Err(text) => return problem("userDNMapping", text),
                Ok(parsed) if parsed.attribute.is_some() => {
                    return problem("userDNMapping", "a query for entries takes no attributes");
                }
                Ok(_) if !query.contains("%u") => {
                    return problem("userDNMapping", "the query must contain %u");
                }
                Ok(_) => {}
            },
            _ => {}
        }
        let Some(query) = &self.groups_query else {
            if self.authorization_enabled {
                return problem("groupsQuery", "authorization needs a query for groups");
            }
            return Ok(());
        };
        if let Err(text) = LdapQuery::parse(query) {
            return problem("groupsQuery", text);
        }
        if !query.contains("%u") && !query.contains("%D") {
            return problem("groupsQuery", "the query must contain %u or %D");
        }
        if query.contains("%D") && self.user_dn_mapping.is_none() {
            return problem(
                "userDNMapping",
                "%D in groupsQuery needs a rule for entries of users",
            );
        }
        if query.contains("%u") && self.nested_groups_enabled {
            return problem(
                "groupsQuery",
                "groups of groups need a query with %D and without %u",
            );
        }
        Ok(())
    }

    /// Returns the name of a user's entry, if a template gives it.
    #[must_use]
    pub fn dn_by_template(&self, user: &str) -> Option<String> {
        match &self.user_dn_mapping {
            Some(UserDnMapping::Template(template)) => {
                let user = escape_dn_value(user);
                Some(fill(template, &user, ""))
            }
            _ => None,
        }
    }

    /// Returns the search that finds a user's entry, if there is one.
    #[must_use]
    pub fn user_search(&self, user: &str) -> Option<LdapSearch> {
        match &self.user_dn_mapping {
            Some(UserDnMapping::Query(query)) => {
                Some(LdapQuery::parse(query).ok()?.search(user, ""))
            }
            _ => None,
        }
    }

    /// Returns the search for the groups of a user with this entry, or of a group with it.
    #[must_use]
    pub fn groups_search(&self, user: &str, dn: &str) -> Option<LdapSearch> {
        let query = self.groups_query.as_ref()?;
        Some(LdapQuery::parse(query).ok()?.search(user, dn))
    }

    /// Returns whether a search for groups needs the name of the user's entry.
    #[must_use]
    pub fn groups_need_dn(&self) -> bool {
        let query = self.groups_query.as_ref();
        query.is_some_and(|query| query.contains("%D"))
    }
}

/// The scope of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LdapScope {
    /// The entry itself.
    Base,
    /// The entries directly below it.
    One,
    /// It, and all entries below it.
    Sub,
}

/// A search with placeholders, as text `BASE?ATTRIBUTE?SCOPE?FILTER`: the parts of an LDAP URL (RFC 4516) without its escapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdapQuery {
    base: String,
    attribute: Option<String>,
    scope: LdapScope,
    filter: String,
}

/// A search to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LdapSearch {
    /// The name of the entry where the search begins.
    pub base: String,
    /// The attribute whose values are wanted; `None` for the names of entries.
    pub attribute: Option<String>,
    /// The scope.
    pub scope: LdapScope,
    /// The filter.
    pub filter: String,
}

impl LdapQuery {
    /// Reads a query.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.splitn(4, '?').map(str::trim);
        let base = parts.next().unwrap_or_default();
        if base.is_empty() {
            return Err("the query must begin with the name of an entry");
        }
        let attribute = parts.next().unwrap_or_default();
        if attribute.contains([',', '(', ')', '%']) {
            return Err("a query takes one attribute at most");
        }
        let scope = match parts.next().unwrap_or_default() {
            "" | "base" => LdapScope::Base,
            "one" => LdapScope::One,
            "sub" => LdapScope::Sub,
            _ => return Err("the scope of a query is base, one or sub"),
        };
        let filter = parts.next().filter(|filter| !filter.is_empty());
        let filter = filter.unwrap_or(ANY_ENTRY);
        if !is_balanced(filter) {
            return Err("the filter of the query is not in parentheses that match");
        }
        Ok(Self {
            base: base.to_owned(),
            attribute: (!attribute.is_empty()).then(|| attribute.to_owned()),
            scope,
            filter: filter.to_owned(),
        })
    }

    /// Returns the search for a user: `%u` is its name, `%D` the name of its entry.
    #[must_use]
    pub fn search(&self, user: &str, dn: &str) -> LdapSearch {
        let (in_filter, dn_in_filter) = (escape_filter_value(user), escape_filter_value(dn));
        LdapSearch {
            base: fill(&self.base, &escape_dn_value(user), dn),
            attribute: self.attribute.clone(),
            scope: self.scope,
            filter: fill(&self.filter, &in_filter, &dn_in_filter),
        }
    }
}

fn is_balanced(filter: &str) -> bool {
    let mut depth = 0_i32;
    for (at, c) in filter.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        let is_last = at + c.len_utf8() == filter.len();
        if depth < 0 || (depth == 0 && !is_last) {
            return false;
        }
    }
    depth == 0 && filter.starts_with('(')
}

/// Replaces the placeholders of a text in one pass: what replaces one is never searched for another.
fn fill(text: &str, user: &str, dn: &str) -> String {
    let mut filled = String::with_capacity(text.len() + user.len() + dn.len());
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        let (before, after) = rest.split_at(at);
        filled.push_str(before);
        let (placeholder, value) = match after.as_bytes().get(1) {
            Some(b'u') => (2, user),
            Some(b'D') => (2, dn),
            _ => (1, "%"),
        };
        filled.push_str(value);
        rest = &after[placeholder..];
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings() -> LdapSettings {
        LdapSettings {
            authentication_enabled: true,
            authorization_enabled: true,
            hosts: vec!["ldap.example.org".to_owned()],
            user_dn_mapping: Some(UserDnMapping::Template(
                "uid=%u,ou=people,dc=org".to_owned(),
            )),
            groups_query: Some("ou=groups,dc=org??one?(member=%D)".to_owned()),
            ..LdapSettings::default()
        }
    }

    #[test]
    fn searches_contain_the_user_and_its_entry() {
        let settings = settings();
        assert_eq!(settings.check(), Ok(()));
        let dn = settings.dn_by_template("ada").unwrap();
        assert_eq!(dn, "uid=ada,ou=people,dc=org");
        let groups = settings.groups_search("ada", &dn).unwrap();
        assert_eq!(groups.filter, "(member=uid=ada,ou=people,dc=org)");
        assert_eq!(
            (groups.base.as_str(), groups.scope),
            ("ou=groups,dc=org", LdapScope::One)
        );
        let own = LdapQuery::parse("%D?memberOf?base")
            .unwrap()
            .search("ada", &dn);
        assert_eq!((own.base, own.attribute.as_deref()), (dn, Some("memberOf")));
        assert_eq!(own.filter, ANY_ENTRY);
    }

    #[test]
    fn placeholders_are_replaced_once_and_escaped() {
        let query = LdapQuery::parse("ou=%u,dc=org??sub?(&(uid=%u)(x=100%))").unwrap();
        let search = query.search("%D*,", "cn=x");
        assert_eq!(search.base, "ou=%D*\\,,dc=org");
        assert_eq!(search.filter, "(&(uid=%D\\2a,)(x=100%))");
    }

    #[test]
    fn settings_that_cannot_work_name_the_field() {
        let query = |text: &str| Some(UserDnMapping::Query(text.to_owned()));
        let template = |text: &str| Some(UserDnMapping::Template(text.to_owned()));
        let groups = |text: &str| Some(text.to_owned());
        for (field, broken) in [
            (
                "hosts",
                LdapSettings {
                    hosts: vec![],
                    ..settings()
                },
            ),
            (
                "userDNMapping",
                LdapSettings {
                    user_dn_mapping: None,
                    ..settings()
                },
            ),
            (
                "userDNMapping",
                LdapSettings {
                    user_dn_mapping: template("uid=x"),
                    ..settings()
                },
            ),
            (
                "userDNMapping",
                LdapSettings {
                    user_dn_mapping: query("dc=org??one?(a=b)"),
                    ..settings()
                },
            ),
            (
                "userDNMapping",
                LdapSettings {
                    user_dn_mapping: query("dc=org?cn?one?(a=%u)"),
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: None,
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: groups("dc=org??all?(m=%D)"),
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: groups("dc=org??one?(m=%D"),
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: groups("dc=org??one?(m=%D)(x=y)"),
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: groups("dc=org??one?m=%D"),
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: groups("dc=org??one?(m=x)"),
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: groups("?a?one?(m=%D)"),
                    ..settings()
                },
            ),
            (
                "groupsQuery",
                LdapSettings {
                    groups_query: groups("dc=org??one?(m=%u)"),
                    nested_groups_enabled: true,
                    ..settings()
                },
            ),
        ] {
            assert_eq!(broken.check().unwrap_err().field, field, "{broken:?}");
        }
        assert_eq!(LdapSettings::default().check(), Ok(()));
    }

    #[test]
    fn stored_settings_are_read_as_they_were_and_debug_text_has_no_password() {
        let settings = LdapSettings {
            bind_pass: "hush".to_owned().into(),
            cacert: Some("PEM".to_owned()),
            ..settings()
        };
        let json = serde_json::to_string(&settings).unwrap();
        assert_eq!(
            serde_json::from_str::<LdapSettings>(&json).unwrap(),
            settings
        );
        assert!(
            json.contains(r#""bindDN":"","bindPass":"hush","userDNMapping":{"template":"#),
            "{json}"
        );
        assert!(!format!("{settings:?}").contains("hush"));
    }

    proptest! {
        #[test]
        fn user_name_never_changes_the_form_of_a_search(user in "\\PC*|[*()\\\\%uD&|,=a]{0,16}") {
            let query = LdapQuery::parse("ou=%u,dc=org??sub?(&(uid=%u)(member=%D))").unwrap();
            let dn = format!("uid={},dc=org", escape_dn_value(&user));
            let search = query.search(&user, &dn);
            let count = |c| search.filter.matches(c).count();
            prop_assert_eq!((count('('), count(')'), count('*')), (3, 3, 0), "{}", search.filter);
            prop_assert!(is_balanced(&search.filter));
        }

        #[test]
        fn any_text_is_a_query_or_none(text in "\\PC*|[?%uD()=,a-c]{0,24}") {
            if let Ok(query) = LdapQuery::parse(&text) {
                prop_assert!(!query.search("ada", "cn=x").base.is_empty());
            }
        }
    }
}
