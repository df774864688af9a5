//! Requests to a directory (LDAP, RFC 4511) for one login or one trial of settings.
//!
//! A login has a connection of its own: it binds as the user, and a connection that is bound as a user is not one for others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kedge_auth::{ExternalGrants, LdapEncryption, LdapScope, LdapSearch, LdapSettings, normal_dn};
use kedge_tls::rustls::ClientConfig;
use kedge_tls::{ServiceTrust, service_config};
use ldap3::{Ldap, LdapConnAsync, LdapConnSettings, LdapError, Scope, SearchEntry, SearchOptions};
use thiserror::Error;

/// The largest number of groups of a user.
const GROUPS_MAX: usize = 1_024;
/// The attribute that stands for none (RFC 4511 section 4.5.1.8).
const NO_ATTRIBUTES: &str = "1.1";

/// Result codes (RFC 4511 section 4.1.9).
mod code {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const SIZE_LIMIT: u32 = 4;
    pub(super) const REFERRAL: u32 = 10;
    pub(super) const CONSTRAINT: u32 = 19;
    pub(super) const NO_SUCH_OBJECT: u32 = 32;
    pub(super) const INVALID_DN: u32 = 34;
    pub(super) const INAPPROPRIATE_AUTH: u32 = 48;
    pub(super) const INVALID_CREDENTIALS: u32 = 49;
    pub(super) const INSUFFICIENT_ACCESS: u32 = 50;
    pub(super) const UNWILLING: u32 = 53;
}

/// The reason why a directory did not accept a user.
#[derive(Debug, Error)]
pub(crate) enum DirectoryError {
    /// The user does not exist, or the password is wrong.
    #[error("unknown user or wrong password")]
    Refused,
    /// No host answers.
    #[error("cannot connect to {host}: {why}")]
    Connect { host: String, why: String },
    /// A request failed.
    #[error("{host}: cannot {what}: {why}")]
    Request {
        host: String,
        what: &'static str,
        why: String,
    },
    /// The settings cannot be used.
    #[error("{0}")]
    Settings(String),
}

/// A directory with its settings.
pub(crate) struct Directory {
    settings: Arc<LdapSettings>,
    tls: Option<Arc<ClientConfig>>,
}

/// A connection to a host of a directory.
struct Connection<'d> {
    settings: &'d LdapSettings,
    host: &'d str,
    ldap: Ldap,
}

impl Directory {
    /// # Errors
    /// `Settings` if the authorities of certificates cannot be used.
    pub(crate) fn new(settings: Arc<LdapSettings>) -> Result<Self, DirectoryError> {
        let trust = match (&settings.cacert, settings.server_cert_validation) {
            (_, false) => ServiceTrust::Unchecked,
            (Some(pem), true) => ServiceTrust::Pem(pem),
            (None, true) => ServiceTrust::System,
        };
        let tls = match settings.encryption {
            LdapEncryption::None => None,
            _ => {
                let config = service_config(&trust);
                Some(config.map_err(|error| DirectoryError::Settings(error.to_string()))?)
            }
        };
        Ok(Self { settings, tls })
    }

    /// Checks a password, and returns the groups of the user if groups give rights.
    pub(crate) async fn authenticate(
        &self,
        user: &str,
        password: &[u8],
    ) -> Result<ExternalGrants, DirectoryError> {
        // A bind without a password succeeds, and proves nothing (RFC 4513 section 5.1.2).
        let password = std::str::from_utf8(password).map_err(|_| DirectoryError::Refused)?;
        if password.is_empty() || password.contains('\0') {
            return Err(DirectoryError::Refused);
        }
        let mut connection = self.connect().await?;
        let dn = connection.find_user(user).await?;
        connection.bind(&dn, password).await?;
        let mut grants = ExternalGrants::default();
        if self.settings.authorization_enabled {
            connection.bind_as_server().await?;
            grants.directory_groups = connection.groups_of(user, &dn).await?;
        }
        connection.end().await;
        Ok(grants)
    }

    /// Returns the groups of a user.
    pub(crate) async fn groups_of(&self, user: &str) -> Result<BTreeSet<String>, DirectoryError> {
        if self.settings.groups_query.is_none() {
            return Err(DirectoryError::Settings(
                "groupsQuery is not set".to_owned(),
            ));
        }
        let mut connection = self.connect().await?;
        let dn = match self.settings.groups_need_dn() {
            true => connection.find_user(user).await?,
            false => String::new(),
        };
        connection.bind_as_server().await?;
        let groups = connection.groups_of(user, &dn).await?;
        connection.end().await;
        Ok(groups)
    }

    /// Connects to each host, and binds as the entry of the settings.
    pub(crate) async fn try_hosts(&self) -> Result<(), DirectoryError> {
        self.check_hosts()?;
        for host in &self.settings.hosts {
            let mut connection = self.connect_to(host).await?;
            connection.bind_as_server().await?;
            connection.end().await;
        }
        Ok(())
    }

    fn check_hosts(&self) -> Result<(), DirectoryError> {
        match self.settings.hosts.is_empty() {
            true => Err(DirectoryError::Settings("hosts is not set".to_owned())),
            false => Ok(()),
        }
    }

    /// Connects to the first host that answers.
    async fn connect(&self) -> Result<Connection<'_>, DirectoryError> {
        self.check_hosts()?;
        let mut last = DirectoryError::Settings(String::new());
        for host in &self.settings.hosts {
            match self.connect_to(host).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to<'d>(&'d self, host: &'d str) -> Result<Connection<'d>, DirectoryError> {
        let settings = &*self.settings;
        let mut options = LdapConnSettings::new().set_conn_timeout(timeout(settings));
        if let Some(tls) = &self.tls {
            options = options.set_config(tls.clone());
        }
        options = options.set_starttls(settings.encryption == LdapEncryption::StartTLSExtension);
        let url = url_of(settings, host);
        let connected = LdapConnAsync::with_settings(options, &url).await;
        let (driver, ldap) = connected.map_err(|error| DirectoryError::Connect {
            host: host.to_owned(),
            why: error.to_string(),
        })?;
        // It ends with the last handle; the requests of the handle report its errors.
        tokio::spawn(async move { driver.drive().await.unwrap_or_default() });
        Ok(Connection {
            settings,
            host,
            ldap,
        })
    }
}

impl Connection<'_> {
    /// Returns the name of a user's entry.
    async fn find_user(&mut self, user: &str) -> Result<String, DirectoryError> {
        if let Some(dn) = self.settings.dn_by_template(user) {
            return Ok(dn);
        }
        let Some(search) = self.settings.user_search(user) else {
            return Err(DirectoryError::Settings(
                "userDNMapping is not set".to_owned(),
            ));
        };
        self.bind_as_server().await?;
        let mut entries = self.search(&search, 2).await?;
        match (entries.pop(), entries.is_empty()) {
            (Some(dn), true) => Ok(dn),
            (None, _) => Err(DirectoryError::Refused),
            (Some(_), false) => Err(self.failed(
                "find the user",
                "userDNMapping finds several entries".to_owned(),
            )),
        }
    }

    /// Binds as the entry of the settings, if there is one.
    async fn bind_as_server(&mut self) -> Result<(), DirectoryError> {
        let settings = self.settings;
        if settings.bind_dn.is_empty() {
            return Ok(());
        }
        if settings.bind_pass.is_empty() {
            return Err(DirectoryError::Settings("bindDN needs bindPass".to_owned()));
        }
        match self.bind(&settings.bind_dn, &settings.bind_pass).await {
            Err(DirectoryError::Refused) => Err(self.failed(
                "bind as bindDN",
                "unknown entry or wrong password".to_owned(),
            )),
            bound => bound,
        }
    }

    async fn bind(&mut self, dn: &str, password: &str) -> Result<(), DirectoryError> {
        let limit = timeout(self.settings);
        let bound = self
            .ldap
            .with_timeout(limit)
            .simple_bind(dn, password)
            .await;
        let result = bound.map_err(|error| self.broken("bind", &error))?;
        match result.rc {
            code::SUCCESS => Ok(()),
            // The last ones are those of locked accounts and of names that the directory cannot have.
            code::INVALID_CREDENTIALS
            | code::NO_SUCH_OBJECT
            | code::INVALID_DN
            | code::INAPPROPRIATE_AUTH
            | code::INSUFFICIENT_ACCESS
            | code::CONSTRAINT
            | code::UNWILLING => Err(DirectoryError::Refused),
            _ => Err(self.failed("bind", result.to_string())),
        }
    }

    /// Returns the groups of a user, and the groups of these if the settings say so, in normal form.
    async fn groups_of(
        &mut self,
        user: &str,
        dn: &str,
    ) -> Result<BTreeSet<String>, DirectoryError> {
        let settings = self.settings;
        let mut groups = BTreeSet::new();
        let mut of = vec![dn.to_owned()];
        let deeper = match settings.nested_groups_enabled {
            true => settings.nested_groups_max_depth,
            false => 0,
        };
        for _ in 0..=deeper {
            let mut found = Vec::new();
            for dn in of.drain(..) {
                let Some(search) = settings.groups_search(user, &dn) else {
                    return Ok(groups);
                };
                for group in self.search(&search, GROUPS_MAX).await? {
                    if groups.insert(normal_dn(&group)) {
                        found.push(group);
                    }
                }
                if groups.len() > GROUPS_MAX {
                    let why = format!("the user has more than {GROUPS_MAX} groups");
                    return Err(self.failed("find groups", why));
                }
            }
            of = found;
        }
        Ok(groups)
    }

    /// Returns the values of the attribute that a search wants, or the names of its entries. An entry that does not exist has none.
    async fn search(
        &mut self,
        search: &LdapSearch,
        max: usize,
    ) -> Result<Vec<String>, DirectoryError> {
        let limit = timeout(self.settings);
        let options = SearchOptions::new()
            .sizelimit(i32::try_from(max).unwrap_or(i32::MAX))
            .timelimit(i32::try_from(limit.as_secs().max(1)).unwrap_or(i32::MAX));
        let scope = match search.scope {
            LdapScope::Base => Scope::Base,
            LdapScope::One => Scope::OneLevel,
            LdapScope::Sub => Scope::Subtree,
        };
        let attribute = search.attribute.as_deref().unwrap_or(NO_ATTRIBUTES);
        let ldap = self.ldap.with_timeout(limit).with_search_options(options);
        let found = ldap
            .search(&search.base, scope, &search.filter, [attribute])
            .await;
        let found = found.map_err(|error| self.broken("search", &error))?;
        match found.1.rc {
            code::SUCCESS | code::REFERRAL | code::SIZE_LIMIT => {}
            code::NO_SUCH_OBJECT => return Ok(Vec::new()),
            _ => return Err(self.failed("search", found.1.to_string())),
        }
        let entries = found
            .0
            .into_iter()
            .filter(|it| !it.is_ref() && !it.is_intermediate());
        let entries = entries.map(SearchEntry::construct);
        let Some(attribute) = &search.attribute else {
            return Ok(entries.map(|entry| entry.dn).collect());
        };
        // Names of attributes have no case.
        let values = entries.flat_map(|entry| {
            let attributes = entry.attrs.into_iter();
            attributes.filter(|(name, _)| name.eq_ignore_ascii_case(attribute))
        });
        Ok(values.flat_map(|(_, values)| values).collect())
    }

    /// Says goodbye; the outcome is known by now.
    async fn end(mut self) {
        let _ = self.ldap.unbind().await;
    }

    fn broken(&self, what: &'static str, error: &LdapError) -> DirectoryError {
        self.failed(what, error.to_string())
    }

    fn failed(&self, what: &'static str, why: String) -> DirectoryError {
        DirectoryError::Request {
            host: self.host.to_owned(),
            what,
            why,
        }
    }
}

fn timeout(settings: &LdapSettings) -> Duration {
    Duration::from_millis(settings.request_timeout.into())
}

fn url_of(settings: &LdapSettings, host: &str) -> String {
    let scheme = match settings.encryption {
        LdapEncryption::TLS => "ldaps",
        LdapEncryption::None | LdapEncryption::StartTLSExtension => "ldap",
    };
    let port = settings.port;
    match host.contains(':') {
        true => format!("{scheme}://[{host}]:{port}"),
        false => format!("{scheme}://{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_the_scheme_of_the_encryption() {
        let of = |encryption, host| {
            let settings = LdapSettings {
                encryption,
                port: 636,
                ..LdapSettings::default()
            };
            url_of(&settings, host)
        };
        assert_eq!(of(LdapEncryption::TLS, "a.org"), "ldaps://a.org:636");
        assert_eq!(
            of(LdapEncryption::StartTLSExtension, "::1"),
            "ldap://[::1]:636"
        );
    }
}
