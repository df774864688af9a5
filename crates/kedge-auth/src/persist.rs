//! The stored form of a [`UserStore`]: JSON, version 5.
//!
//! ```json
//! {
//!   "version": 5,
//!   "fallback_salt_key": "<base64, 32 bytes>",
//!   "iterations": 4096,
//!   "users": [
//!     {
//!       "id": "ada",
//!       "name": "Ada Lovelace",
//!       "roles": ["admin", "data_reader[default:sales:orders]"],
//!       "groups": ["readers"],
//!       "password_change_date": 1700000000,
//!       "credentials": {
//!         "SCRAM-SHA512": {
//!           "iterations": 4096,
//!           "salt": "<base64, 8 to 64 bytes>",
//!           "stored_key": "<base64, as long as the hash>",
//!           "server_key": "<base64, as long as the hash>"
//!         },
//!         "SCRAM-SHA256": {}, "SCRAM-SHA1": {}
//!       },
//!       "argon2id": {
//!         "memory_kib": 19456,
//!         "passes": 2,
//!         "salt": "<base64, 8 to 64 bytes>",
//!         "hash": "<base64, 32 bytes>"
//!       }
//!     }
//!   ],
//!   "groups": [
//!     {
//!       "name": "readers",
//!       "description": "may read",
//!       "roles": ["data_reader[*]"],
//!       "ldap_group_ref": ""
//!     }
//!   ],
//!   "roles": [
//!     {
//!       "name": "orders",
//!       "description": "adds orders",
//!       "scope": "collection",
//!       "privileges": ["access", "insert"]
//!     }
//!   ],
//!   "shared": {"cluster": "<uuid>", "generation": "<uuid>", "revision": 7},
//!   "external": {
//!     "users": [{"id": "bob", "name": "", "roles": ["data_reader[*]"], "groups": []}],
//!     "ldap": {"hosts": ["ldap.example.org"], "bindPass": "<the password itself>"}
//!   }
//! }
//! ```
//!
//! Times are seconds since 1970 (UTC). All three credentials are always present, each with the four fields. An unknown
//! field is an error: this program must not drop it at the next write. Any change of the form is a new version. `shared` is
//! there if a cluster shares the users, `roles` if an administrator has defined some. `argon2id`, with one lane, is there once the password was set or proven to this server.
//!
//! `external` is there if there are external users or settings of a directory, which have all fields of
//! [`LdapSettings`](crate::LdapSettings), or settings of tokens, [`JwtSettings`](crate::JwtSettings), as `jwt`. `audit` is there once an administrator has made
//! settings of the audit log, with all fields of [`AuditSettings`](crate::AuditSettings). Without `external`, `roles` and `audit` the text has version 4, which earlier
//! releases read, too.
//!
//! Versions 1 to 4 are read, too. They have no `argon2id`; versions 1 and 2 have no `shared`, and version 1 has no groups.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::audit_settings::AuditSettings;
use crate::cache::VerifiedCache;
use crate::credential::{Credential, Credentials, FallbackKey};
use crate::custom_role::{CustomRole, CustomRoles, RoleExtent};
use crate::error::{AuthError, StoreProblem};
use crate::external::{ExternalUserDoc, ExternalUsers, JwtSettings, LdapSettings, read_users};
use crate::group::{Group, known_groups};
use crate::hash::{Hash, Secret};
use crate::limits::{
    CUSTOM_ROLES_MAX, DISPLAY_NAME_BYTES_MAX, GROUPS_MAX, ITERATIONS_MAX, ITERATIONS_MIN,
    SALT_BYTES_MAX, SALT_BYTES_MIN, USERS_MAX,
};
use crate::names::{check_group_name, check_text};
use crate::password_hash::{HashCost, PasswordHash};
use crate::policy::PasswordPolicy;
use crate::roles::{Role, Roles};
use crate::shared::UsersRevision;
use crate::store::{User, UserStore, check_display_name, check_name};

/// The version of the stored form that is written; this program reads it and [`OLDEST_VERSION`].
pub const STORE_VERSION: u64 = 5;

/// The version that is written while there is nothing that it does not have.
const VERSION_WITHOUT_ADDITIONS: u64 = 4;

/// The oldest supported version.
const OLDEST_VERSION: u64 = 1;

/// The version, read first to distinguish a newer form from a damaged one.
#[derive(Deserialize)]
struct VersionDoc {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoreDoc {
    version: u64,
    fallback_salt_key: Zeroizing<String>,
    iterations: u32,
    users: Vec<UserDoc>,
    #[serde(default)]
    groups: Vec<GroupDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared: Option<UsersRevision>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password_policy: Option<PasswordPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit: Option<AuditSettings>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roles: Vec<CustomRoleDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    external: Option<ExternalDoc>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CustomRoleDoc {
    name: String,
    description: String,
    scope: String,
    privileges: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExternalDoc {
    users: Vec<ExternalUserDoc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ldap: Option<LdapSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jwt: Option<JwtSettings>,
}

impl ExternalDoc {
    /// Returns the stored form, if there is anything to store.
    fn of(external: &ExternalUsers) -> Option<Self> {
        let users = external.users.iter();
        (!external.is_empty()).then(|| Self {
            users: users
                .map(|(id, user)| ExternalUserDoc::of(id, user))
                .collect(),
            ldap: external.ldap.as_deref().cloned(),
            jwt: external.jwt.as_deref().cloned(),
        })
    }

    fn read(
        self,
        groups: &BTreeMap<String, Group>,
        custom: &CustomRoles,
    ) -> Result<ExternalUsers, AuthError> {
        Ok(ExternalUsers {
            users: read_users(self.users, groups, custom)?,
            ldap: self.ldap.map(Arc::new),
            jwt: self.jwt.map(Arc::new),
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupDoc {
    name: String,
    description: String,
    roles: Vec<String>,
    ldap_group_ref: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UserDoc {
    id: String,
    name: String,
    roles: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    password_change_date: u64,
    credentials: CredentialsDoc,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    argon2id: Option<PasswordHashDoc>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialsDoc {
    #[serde(rename = "SCRAM-SHA512")]
    sha512: CredentialDoc,
    #[serde(rename = "SCRAM-SHA256")]
    sha256: CredentialDoc,
    #[serde(rename = "SCRAM-SHA1")]
    sha1: CredentialDoc,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PasswordHashDoc {
    memory_kib: u32,
    passes: u32,
    salt: String,
    hash: Zeroizing<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialDoc {
    iterations: u32,
    salt: String,
    stored_key: Zeroizing<String>,
    server_key: Zeroizing<String>,
}

impl UserStore {
    /// Encodes the store as JSON text.
    ///
    /// It contains no password, but keys with which a password can be guessed offline and a server be impersonated:
    /// keep the file private to the server's own account.
    #[must_use]
    pub fn to_json(&self) -> String {
        let external = ExternalDoc::of(&self.external);
        let doc = StoreDoc {
            version: match has_additions(self) {
                true => STORE_VERSION,
                false => VERSION_WITHOUT_ADDITIONS,
            },
            fallback_salt_key: encode(&*self.fallback_salt_key),
            iterations: self.iterations,
            users: self.users.values().map(UserDoc::from).collect(),
            groups: self.groups.iter().map(GroupDoc::from).collect(),
            shared: self.shared.clone(),
            password_policy: self.password_policy.clone(),
            audit: self.audit.clone(),
            roles: self
                .custom_roles
                .values()
                .map(|role| CustomRoleDoc::from(&**role))
                .collect(),
            external,
        };
        let mut text = serde_json::to_string_pretty(&doc).expect("text and numbers become JSON");
        text.push('\n');
        text
    }

    /// Reads a text that [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// [`AuthError::UnsupportedVersion`], [`AuthError::MalformedStore`], [`AuthError::CorruptStore`], [`AuthError::TooManyUsers`],
    /// [`AuthError::TooManyGroups`]; [`AuthError::BadName`], [`AuthError::BadDisplayName`], [`AuthError::BadGroupName`],
    /// [`AuthError::BadDescription`], [`AuthError::UnknownGroup`], [`AuthError::UnknownRole`], [`AuthError::BadRole`] and
    /// [`AuthError::TooManyRoles`] for content that no store would have accepted; [`AuthError::NoRandomness`].
    pub fn from_json(text: &str) -> Result<Self, AuthError> {
        let VersionDoc { version } = serde_json::from_str(text).map_err(malformed)?;
        if !(OLDEST_VERSION..=STORE_VERSION).contains(&version) {
            return Err(AuthError::UnsupportedVersion {
                found: version,
                supported: STORE_VERSION,
            });
        }
        let doc: StoreDoc = serde_json::from_str(text).map_err(malformed)?;
        let parts = StoreParts {
            users: doc.users,
            groups: doc.groups,
            roles: doc.roles,
        };
        let (users, groups, custom_roles) = parts.read()?;
        let external = doc
            .external
            .map(|external| external.read(&groups, &custom_roles));
        Ok(Self {
            users,
            groups,
            custom_roles,
            external: external.transpose()?.unwrap_or_default(),
            fallback_salt_key: decode_fallback_key(&doc.fallback_salt_key)?,
            iterations: sane_iterations(doc.iterations)?,
            shared: doc.shared,
            password_policy: doc.password_policy,
            audit: doc.audit,
            hash_cost: HashCost::DEFAULT,
            verified: VerifiedCache::new()?,
        })
    }
}

/// Returns whether there is anything that needs the newest version of the stored forms.
pub(crate) fn has_additions(store: &UserStore) -> bool {
    store.has_external() || !store.custom_roles.is_empty() || store.audit.is_some()
}

/// Users, groups and defined roles by their names.
type UsersAndGroups = (BTreeMap<String, User>, BTreeMap<String, Group>, CustomRoles);

/// The users, groups and defined roles as read.
pub(crate) struct StoreParts {
    pub(crate) users: Vec<UserDoc>,
    pub(crate) groups: Vec<GroupDoc>,
    pub(crate) roles: Vec<CustomRoleDoc>,
}

impl StoreParts {
    /// Checks and decodes them.
    pub(crate) fn read(self) -> Result<UsersAndGroups, AuthError> {
        if self.users.len() > USERS_MAX {
            return Err(AuthError::TooManyUsers);
        }
        let custom = custom_roles(&self.roles)?;
        let groups = groups(self.groups, &custom)?;
        let mut users = BTreeMap::new();
        for mut doc in self.users {
            let names = known_groups(&groups, &std::mem::take(&mut doc.groups))?;
            let mut user = doc.into_user(&custom)?;
            user.groups = names;
            match users.entry(user.id.clone()) {
                Entry::Vacant(entry) => entry.insert(user),
                Entry::Occupied(entry) => {
                    let user = Some(entry.key().clone());
                    return Err(AuthError::CorruptStore {
                        user,
                        problem: StoreProblem::Duplicate,
                    });
                }
            };
        }
        Ok((users, groups, custom))
    }
}

fn custom_roles(docs: &[CustomRoleDoc]) -> Result<CustomRoles, AuthError> {
    if docs.len() > CUSTOM_ROLES_MAX {
        return Err(AuthError::TooManyCustomRoles);
    }
    let corrupt = || AuthError::CorruptStore {
        user: None,
        problem: StoreProblem::Role,
    };
    let mut roles = CustomRoles::new();
    for doc in docs {
        let extent = RoleExtent::with_name(&doc.scope).ok_or_else(corrupt)?;
        let privileges = doc.privileges.iter().map(String::as_str);
        let role = CustomRole::new(&doc.name, &doc.description, extent, privileges)?;
        if roles.insert(doc.name.clone(), Arc::new(role)).is_some() {
            return Err(corrupt());
        }
    }
    Ok(roles)
}

impl From<&CustomRole> for CustomRoleDoc {
    fn from(role: &CustomRole) -> Self {
        Self {
            name: role.name().to_owned(),
            description: role.description().to_owned(),
            scope: role.extent().name().to_owned(),
            privileges: role.privileges().map(str::to_owned).collect(),
        }
    }
}

impl CustomRoleDoc {
    /// Returns the name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl UserDoc {
    /// Returns the login name.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Leaves out the hash of the password, which is each server's own.
    pub(crate) fn without_hash(self) -> Self {
        Self {
            argon2id: None,
            ..self
        }
    }
}

impl GroupDoc {
    /// Returns the name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// Decodes the key from which the salts of missing users are derived.
pub(crate) fn decode_fallback_key(text: &str) -> Result<FallbackKey, AuthError> {
    let key = decode(text).and_then(|key| key.as_slice().try_into().ok());
    key.map(Zeroizing::new).ok_or(AuthError::CorruptStore {
        user: None,
        problem: StoreProblem::FallbackKey,
    })
}

/// Checks the iterations of new passwords.
pub(crate) fn sane_iterations(iterations: u32) -> Result<u32, AuthError> {
    match iterations_are_sane(iterations) {
        true => Ok(iterations),
        false => Err(AuthError::CorruptStore {
            user: None,
            problem: StoreProblem::Iterations,
        }),
    }
}

impl From<(&String, &Group)> for GroupDoc {
    fn from((name, group): (&String, &Group)) -> Self {
        Self {
            name: name.clone(),
            description: group.description.clone(),
            roles: group.roles.iter().map(ToString::to_string).collect(),
            ldap_group_ref: group.ldap_group_ref.clone(),
        }
    }
}

fn groups(docs: Vec<GroupDoc>, custom: &CustomRoles) -> Result<BTreeMap<String, Group>, AuthError> {
    if docs.len() > GROUPS_MAX {
        return Err(AuthError::TooManyGroups);
    }
    let mut groups = BTreeMap::new();
    for doc in docs {
        check_group_name(&doc.name)?;
        for text in [&doc.description, &doc.ldap_group_ref] {
            check_text(text, DISPLAY_NAME_BYTES_MAX).map_err(AuthError::BadDescription)?;
        }
        let group = Group {
            roles: roles(&doc.roles, custom)?,
            description: doc.description,
            ldap_group_ref: doc.ldap_group_ref,
        };
        if groups.insert(doc.name, group).is_some() {
            return Err(AuthError::CorruptStore {
                user: None,
                problem: StoreProblem::DuplicateGroup,
            });
        }
    }
    Ok(groups)
}

fn roles(texts: &[String], custom: &CustomRoles) -> Result<Roles, AuthError> {
    let roles = texts.iter().map(|role| Role::parse(role, custom));
    Roles::new(roles.collect::<Result<Vec<_>, AuthError>>()?)
}

impl From<&User> for UserDoc {
    fn from(user: &User) -> Self {
        Self {
            id: user.id.clone(),
            name: user.name.clone(),
            roles: user.roles.iter().map(ToString::to_string).collect(),
            groups: user.groups.iter().cloned().collect(),
            password_change_date: user.password_change_date_s,
            credentials: CredentialsDoc {
                sha512: CredentialDoc::from(&user.credentials.sha512),
                sha256: CredentialDoc::from(&user.credentials.sha256),
                sha1: CredentialDoc::from(&user.credentials.sha1),
            },
            argon2id: user.password_hash.as_ref().map(PasswordHashDoc::from),
        }
    }
}

impl UserDoc {
    fn into_user(self, custom: &CustomRoles) -> Result<User, AuthError> {
        let doc = self;
        check_name(&doc.id)?;
        check_display_name(&doc.name)?;
        let roles = roles(&doc.roles, custom)?;
        let corrupt = |problem| AuthError::CorruptStore {
            user: Some(doc.id.clone()),
            problem,
        };
        let credential = |stored: &CredentialDoc, hash| stored.decode(hash).map_err(corrupt);
        let credentials = Credentials {
            sha512: credential(&doc.credentials.sha512, Hash::Sha512)?,
            sha256: credential(&doc.credentials.sha256, Hash::Sha256)?,
            sha1: credential(&doc.credentials.sha1, Hash::Sha1)?,
        };
        let hash = doc.argon2id.as_ref().map(PasswordHashDoc::decode);
        let password_hash = hash.transpose().map_err(corrupt)?;
        Ok(User {
            id: doc.id,
            name: doc.name,
            roles,
            groups: BTreeSet::new(),
            password_change_date_s: doc.password_change_date,
            credentials,
            password_hash,
        })
    }
}

impl From<&PasswordHash> for PasswordHashDoc {
    fn from(hash: &PasswordHash) -> Self {
        Self {
            memory_kib: hash.cost().memory_kib(),
            passes: hash.cost().passes(),
            salt: STANDARD.encode(hash.salt()),
            hash: encode(hash.hash()),
        }
    }
}

impl PasswordHashDoc {
    fn decode(&self) -> Result<PasswordHash, StoreProblem> {
        let cost = HashCost::new(self.memory_kib, self.passes);
        let cost = cost.map_err(|_| StoreProblem::HashCost)?;
        let hash = decode(&self.hash).ok_or(StoreProblem::Key)?;
        PasswordHash::stored(cost, decode_salt(&self.salt)?, hash)
    }
}

fn decode_salt(text: &str) -> Result<Vec<u8>, StoreProblem> {
    let salt = STANDARD.decode(text).map_err(|_| StoreProblem::Salt)?;
    match (SALT_BYTES_MIN..=SALT_BYTES_MAX).contains(&salt.len()) {
        true => Ok(salt),
        false => Err(StoreProblem::Salt),
    }
}

impl From<&Credential> for CredentialDoc {
    fn from(credential: &Credential) -> Self {
        Self {
            iterations: credential.iterations,
            salt: STANDARD.encode(&credential.salt),
            stored_key: encode(&credential.stored_key),
            server_key: encode(&credential.server_key),
        }
    }
}

impl CredentialDoc {
    fn decode(&self, hash: Hash) -> Result<Credential, StoreProblem> {
        if !iterations_are_sane(self.iterations) {
            return Err(StoreProblem::Iterations);
        }
        let salt = decode_salt(&self.salt)?;
        let key = |text: &str| {
            decode(text)
                .filter(|key| key.len() == hash.len())
                .ok_or(StoreProblem::Key)
        };
        Ok(Credential {
            hash,
            iterations: self.iterations,
            salt,
            stored_key: key(&self.stored_key)?,
            server_key: key(&self.server_key)?,
        })
    }
}

fn iterations_are_sane(iterations: u32) -> bool {
    (ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations)
}

pub(crate) fn encode(bytes: &[u8]) -> Zeroizing<String> {
    Zeroizing::new(STANDARD.encode(bytes))
}

fn decode(text: &str) -> Option<Secret> {
    STANDARD.decode(text).ok().map(Zeroizing::new)
}

// Only the position: serde's message can quote the text, and the text contains keys.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the shape that map_err wants"
)]
pub(crate) fn malformed(error: serde_json::Error) -> AuthError {
    AuthError::MalformedStore {
        line: error.line(),
        column: error.column(),
    }
}
