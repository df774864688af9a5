//! SASL state machines, the password store, and the rights of users.
//!
//! Everything here is sans-IO: messages come in and go out as bytes, times come in as arguments, and the caller writes
//! the JSON text of the store. The only external input is randomness (salts, nonces, keys), from the operating system.
//!
//! * [`UserStore`] has users, their salted credentials and their [`Roles`], and [`Group`]s that give users more.
//! * [`ServerSession`] answers one login: PLAIN (RFC 4616) or SCRAM (RFC 5802, RFC 7677, and the
//!   same construction with SHA-512).
//! * [`ClientSession`] is the other side, for Kedge's own tools.
//! * [`NodeProofs`] checks HTTP requests of other nodes, which prove the cluster's secret without sending it.
//!
//! # Invariants
//!
//! * No password is stored, in memory or in the JSON text: only salts, StoredKeys, ServerKeys and argon2id hashes.
//! * A login of a missing user costs the same work, and gets messages of the same length, as one with a wrong password;
//!   the salt is the same each time, also after a restart.
//! * Every decision about a secret is a constant-time comparison, and intermediate secrets are overwritten when they
//!   are dropped.
//! * External users, whose passwords a directory checks, have ids that begin with `^`: see [`external_id`].
//! * A session owns its data. The store may change or be dropped between two messages.
//!
//! # Example
//!
//! ```
//! use kedge_auth::{ClientSession, ClientStep, Mechanism, ServerSession, ServerStep, UserStore, random_nonce};
//!
//! let mut store = UserStore::new()?;
//! store.add("ada", "lovelace", "data_reader[default]".parse()?, 1_700_000_000)?;
//!
//! let mechanism = Mechanism::ScramSha512;
//! let (mut client, first) = ClientSession::start(mechanism, "ada", "lovelace", random_nonce)?;
//! let (mut server, step) = ServerSession::start(&store, mechanism, &first, random_nonce);
//! let ServerStep::Continue(challenge) = step else { panic!("SCRAM takes two steps") };
//! let ClientStep::Send(last) = client.step(&challenge)? else { panic!("a proof is due") };
//! let ServerStep::Done { user, payload } = server.step(&last) else { panic!("the password is right") };
//! assert_eq!(user, "ada");
//! assert_eq!(client.step(&payload)?, ClientStep::Done);
//! # Ok::<(), kedge_auth::AuthError>(())
//! ```

mod audit_settings;
mod auth_file;
mod cache;
mod catalogue;
mod client;
mod credential;
mod custom_role;
mod documents;
mod error;
mod external;
mod group;
mod hash;
mod limits;
mod mechanism;
mod message;
mod names;
mod node_proof;
mod password_hash;
mod persist;
mod policy;
mod privilege;
mod random;
mod role_definitions;
mod roles;
mod server;
mod shared;
mod store;

pub use audit_settings::{AuditSettings, AuditUser};
pub use auth_file::{AuthFile, AuthFileError};
pub use catalogue::{RoleInfo, RoleKind, roles_catalogue};
pub use client::{ClientSession, ClientStep};
pub use custom_role::{CustomRole, CustomRoleInfo, CustomRoles, RoleExtent};
pub use documents::{COMMON_DOCUMENT, UserDocuments};
pub use error::{
    AuthError, PasswordProblem, RoleDefinitionProblem, RoleProblem, StoreProblem, UserNameProblem,
};
pub use external::{
    ClaimProblem, EXTERNAL_PREFIX, ExternalCache, ExternalGrants, ExternalUser, JWT_BYTES_MAX,
    JWT_ISSUERS_MAX, JwtAlgorithm, JwtIssuer, JwtRule, JwtSettings, LdapEncryption, LdapQuery,
    LdapScope, LdapSearch, LdapSettings, SettingProblem, UserDnMapping, escape_dn_value,
    escape_filter_value, external_id, external_name, login_of_claims, normal_dn,
};
pub use group::{Group, GroupChange, UserChange};
pub use limits::{
    AUTH_FILE_USERS_MAX, CUSTOM_ROLES_MAX, DISPLAY_NAME_BYTES_MAX, GROUPS_MAX, GROUPS_PER_USER_MAX,
    HASH_MEMORY_KIB_DEFAULT, HASH_MEMORY_KIB_MAX, HASH_MEMORY_KIB_MIN, HASH_PASSES_DEFAULT,
    HASH_PASSES_MAX, HASH_PASSES_MIN, ITERATIONS_DEFAULT, ITERATIONS_MAX, ITERATIONS_MIN,
    MESSAGE_BYTES_MAX, PASSWORD_BYTES_MAX, RESERVED_PREFIX, ROLES_PER_USER_MAX,
    USER_NAME_BYTES_MAX, USERS_MAX,
};
pub use mechanism::Mechanism;
pub use message::{bearer_token, plain_credentials};
pub use names::is_reserved;
pub use node_proof::{
    BodyDigest, NONCE_HEADER, NONCE_LIFE, NodeProofs, PROOF_SCHEME, ProofError, ProvenRequest,
};
pub use password_hash::HashCost;
pub use persist::STORE_VERSION;
pub use policy::{CharacterClass, PASSWORD_LENGTH_MIN_MAX, PasswordPolicy, WeakPassword};
pub use privilege::{Privilege, Privileges};
pub use random::random_nonce;
pub use roles::{PartialPrivileges, Role, Roles};
pub use server::{LoginFailure, ServerSession, ServerStep};
pub use shared::UsersRevision;
pub use store::{HashUpgrade, User, UserStore, is_user_name};
