//! The users that the nodes of a cluster share, as JSON documents: one for each user and group, and one that all have in
//! common.
//!
//! | name | content |
//! |---|---|
//! | `common` | `version` of the documents (2, or 1 without what came with version 2: anything external, defined roles, settings of the audit log), `cluster`, `generation`, `revision`, `fallback_salt_key`, `iterations`, `audit`, `ldap`, `jwt` |
//! | `GENERATION/local/USER` | a user, as in the [stored form](crate::UserStore::to_json), without the argon2id hash |
//! | `GENERATION/groups/GROUP` | a group, as there |
//! | `GENERATION/roles/ROLE` | a role that an administrator has defined, as there |
//! | `GENERATION/external/USER` | an external user, as there |
//!
//! Only documents of the generation that `common` names are valid. More changes than are made together are written as another
//! generation, which becomes valid with one change of `common`.
//!
//! Invariants:
//! * Reserved users and groups, which are a node's own, are in no document.
//! * No document contains a password, except for that of the directory's settings, which the server has to send.
//! * argon2id hashes are each node's own: a node computes that of a user at the user's first login with the password itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::audit_settings::AuditSettings;
use crate::error::{AuthError, StoreProblem};
use crate::external::{ExternalUserDoc, ExternalUsers, JwtSettings, LdapSettings, read_users};
use crate::names::is_reserved;
use crate::persist::{
    CustomRoleDoc, GroupDoc, StoreParts, UserDoc, decode_fallback_key, encode, has_additions,
    malformed, sane_iterations,
};
use crate::policy::PasswordPolicy;
use crate::shared::UsersRevision;
use crate::store::UserStore;

/// The name of the document that all users have in common. Every change of another document changes it, too.
pub const COMMON_DOCUMENT: &str = "common";
/// The second parts of the names of the other documents.
const LOCAL: &str = "local";
const GROUPS: &str = "groups";
const ROLES: &str = "roles";
const EXTERNAL: &str = "external";
/// The newest version of the documents.
const DOCUMENTS_VERSION: u64 = 2;
/// The version without external users, defined roles and settings of the audit log: releases that know no others read it, too.
const VERSION_WITHOUT_ADDITIONS: u64 = 1;

/// The documents, by name.
pub type UserDocuments = BTreeMap<String, Vec<u8>>;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommonDoc {
    version: u64,
    cluster: String,
    generation: String,
    revision: u64,
    fallback_salt_key: Zeroizing<String>,
    iterations: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password_policy: Option<PasswordPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit: Option<AuditSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ldap: Option<LdapSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jwt: Option<JwtSettings>,
}

impl UserStore {
    /// Returns the cluster that shares these users; `None` for a server's own users.
    #[must_use]
    pub const fn shared(&self) -> Option<&UsersRevision> {
        self.shared.as_ref()
    }

    /// Returns these users as those that a cluster shares, in this revision.
    #[must_use]
    pub fn into_shared(self, shared: UsersRevision) -> Self {
        Self {
            shared: Some(shared),
            ..self
        }
    }

    /// Encodes the users that a cluster shares; none for a server's own ones.
    #[must_use]
    pub fn to_documents(&self) -> UserDocuments {
        let mut documents = UserDocuments::new();
        let Some(shared) = &self.shared else {
            return documents;
        };
        let common = CommonDoc {
            version: match has_additions(self) {
                true => DOCUMENTS_VERSION,
                false => VERSION_WITHOUT_ADDITIONS,
            },
            cluster: shared.cluster.clone(),
            generation: shared.generation.clone(),
            revision: shared.revision,
            fallback_salt_key: encode(&*self.fallback_salt_key),
            iterations: self.iterations,
            password_policy: self.password_policy.clone(),
            audit: self.audit.clone(),
            ldap: self.external.ldap.as_deref().cloned(),
            jwt: self.external.jwt.as_deref().cloned(),
        };
        let generation = &shared.generation;
        documents.insert(COMMON_DOCUMENT.to_owned(), json(&common));
        for (id, user) in self.users.iter().filter(|(id, _)| !is_reserved(id)) {
            let name = format!("{generation}/{LOCAL}/{id}");
            documents.insert(name, json(&UserDoc::from(user).without_hash()));
        }
        for role in self.custom_roles.values() {
            let name = format!("{generation}/{ROLES}/{}", role.name());
            documents.insert(name, json(&CustomRoleDoc::from(&**role)));
        }
        for group in self.groups.iter().filter(|(name, _)| !is_reserved(name)) {
            let name = format!("{generation}/{GROUPS}/{}", group.0);
            documents.insert(name, json(&GroupDoc::from(group)));
        }
        for (id, user) in &self.external.users {
            let name = format!("{generation}/{EXTERNAL}/{id}");
            documents.insert(name, json(&ExternalUserDoc::of(id, user)));
        }
        documents
    }

    /// Returns the users of documents, with the reserved users of this store; `None` without the common document. No password
    /// was verified yet, and there are no hashes: see [`UserStore::keep_verified`], [`UserStore::keep_hashes`].
    ///
    /// # Errors
    /// Those of [`UserStore::from_json`].
    pub fn with_documents(&self, documents: &UserDocuments) -> Result<Option<Self>, AuthError> {
        let Some(common) = documents.get(COMMON_DOCUMENT) else {
            return Ok(None);
        };
        let common: CommonDoc = serde_json::from_slice(common).map_err(malformed)?;
        if !(VERSION_WITHOUT_ADDITIONS..=DOCUMENTS_VERSION).contains(&common.version) {
            return Err(AuthError::UnsupportedVersion {
                found: common.version,
                supported: DOCUMENTS_VERSION,
            });
        }
        let parts = StoreParts {
            users: of_kind(documents, &common, LOCAL, UserDoc::id)?,
            groups: of_kind(documents, &common, GROUPS, GroupDoc::name)?,
            roles: of_kind(documents, &common, ROLES, CustomRoleDoc::name)?,
        };
        let (mut users, groups, custom_roles) = parts.read()?;
        let external = of_kind(documents, &common, EXTERNAL, ExternalUserDoc::id)?;
        let external = ExternalUsers {
            users: read_users(external, &groups, &custom_roles)?,
            ldap: common.ldap.map(Arc::new),
            jwt: common.jwt.map(Arc::new),
        };
        let own = self.users.iter().filter(|(id, _)| is_reserved(id));
        users.extend(own.map(|(id, user)| (id.clone(), user.clone())));
        Ok(Some(Self {
            users,
            groups,
            custom_roles,
            external,
            fallback_salt_key: decode_fallback_key(&common.fallback_salt_key)?,
            iterations: sane_iterations(common.iterations)?,
            password_policy: common.password_policy,
            audit: common.audit,
            shared: Some(UsersRevision {
                cluster: common.cluster,
                generation: common.generation,
                revision: common.revision,
            }),
            hash_cost: self.hash_cost,
            verified: self.verified.clone(),
        }))
    }
}

fn json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("text and numbers become JSON")
}

/// Parses the valid documents of a kind. The rest of a name is that of the user or group.
fn of_kind<D: for<'d> Deserialize<'d>>(
    documents: &UserDocuments,
    common: &CommonDoc,
    kind: &str,
    name_of: impl Fn(&D) -> &str,
) -> Result<Vec<D>, AuthError> {
    let prefix = format!("{}/{kind}/", common.generation);
    let mut parsed = Vec::new();
    for (name, document) in documents {
        let Some(name) = name.strip_prefix(&prefix) else {
            continue;
        };
        let document: D = serde_json::from_slice(document).map_err(malformed)?;
        if name_of(&document) != name || is_reserved(name) {
            return Err(AuthError::CorruptStore {
                user: Some(name.to_owned()),
                problem: StoreProblem::Name,
            });
        }
        parsed.push(document);
    }
    Ok(parsed)
}
