//! The errors of this crate, in one type.

use thiserror::Error;

use crate::limits::{
    CUSTOM_ROLES_MAX, DISPLAY_NAME_BYTES_MAX, GROUPS_MAX, GROUPS_PER_USER_MAX, HASH_MEMORY_KIB_MAX,
    HASH_MEMORY_KIB_MIN, HASH_PASSES_MAX, HASH_PASSES_MIN, ITERATIONS_MAX, ITERATIONS_MIN,
    PASSWORD_BYTES_MAX, RESERVED_PREFIX, ROLES_PER_USER_MAX, USER_NAME_BYTES_MAX, USERS_MAX,
};

/// An operation on users, roles, the stored form or a client's login failed.
///
/// A login that a *server* refuses is no error but [`ServerStep::Failed`](crate::ServerStep::Failed). No message contains a
/// password, a key or text from the stored file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AuthError {
    /// The user name is invalid.
    #[error("bad user name: {0}")]
    BadName(UserNameProblem),
    /// The name is reserved for the server itself: see [`is_reserved`](crate::is_reserved).
    #[error(
        "the name {0:?} is reserved: names that begin with \"{RESERVED_PREFIX}\" are the server's own"
    )]
    ReservedName(String),
    /// The display name is too long or contains control characters.
    #[error("bad display name: {0}")]
    BadDisplayName(UserNameProblem),
    /// The password is invalid.
    #[error("bad password: {0}")]
    BadPassword(PasswordProblem),
    /// There is no such user.
    #[error("unknown user {0:?}")]
    UnknownUser(String),
    /// The user already exists.
    #[error("user {0:?} exists")]
    UserExists(String),
    /// The store is full.
    #[error("too many users: the limit is {USERS_MAX}")]
    TooManyUsers,
    /// There is no such group.
    #[error("unknown group {0:?}")]
    UnknownGroup(String),
    /// The name of a group is invalid.
    #[error("bad group name: {0}")]
    BadGroupName(UserNameProblem),
    /// A group's description is too long or contains control characters.
    #[error("bad description: {0}")]
    BadDescription(UserNameProblem),
    /// The store has too many groups, or a user would be in too many.
    #[error("too many groups: the limit is {GROUPS_MAX}, and {GROUPS_PER_USER_MAX} per user")]
    TooManyGroups,
    /// The maker of the change may not grant, change or revoke such rights.
    #[error("only a full administrator may change who can give rights to others")]
    Guarded,
    /// No role has this name.
    #[error("unknown role {0:?}")]
    UnknownRole(String),
    /// A role is known but malformed.
    #[error("bad role {role:?}: {problem}")]
    BadRole {
        /// The role as given.
        role: String,
        /// The error.
        problem: RoleProblem,
    },
    /// The name of a defined role is invalid.
    #[error("bad role name: {0}")]
    BadRoleName(UserNameProblem),
    /// The definition of a role is invalid.
    #[error("bad role definition: {0}")]
    BadRoleDefinition(RoleDefinitionProblem),
    /// The role cannot be removed, or change its extent, while a user or group has it.
    #[error("the role {role:?} is in use: {by} has it")]
    RoleInUse {
        /// The role.
        role: String,
        /// A user or group that has it.
        by: String,
    },
    /// The store has too many defined roles.
    #[error("too many roles: the limit is {CUSTOM_ROLES_MAX} that are defined")]
    TooManyCustomRoles,
    /// A user would have too many roles.
    #[error("too many roles: the limit is {ROLES_PER_USER_MAX} per user")]
    TooManyRoles,
    /// The iteration count is out of range.
    #[error("{0} iterations: must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")]
    BadIterations(u32),
    /// The cost of an argon2id hash is out of range.
    #[error(
        "argon2id with {memory_kib} KiB and {passes} passes: must be {HASH_MEMORY_KIB_MIN} to {HASH_MEMORY_KIB_MAX} KiB and \
         {HASH_PASSES_MIN} to {HASH_PASSES_MAX} passes"
    )]
    BadHashCost {
        /// The memory, in KiB.
        memory_kib: u32,
        /// The number of passes.
        passes: u32,
    },
    /// The system has no memory for an argon2id hash.
    #[error("no memory for an argon2id hash of {0} KiB")]
    NoMemoryForHash(u32),
    /// No SASL mechanism has this name.
    #[error("unknown SASL mechanism {0:?}")]
    UnknownMechanism(String),
    /// The stored form has a version that this program does not support: use a newer one.
    #[error("user store of version {found}: this program reads version {supported}")]
    UnsupportedVersion {
        /// The version of the text.
        found: u64,
        /// The only supported version.
        supported: u64,
    },
    /// The stored form is not the expected JSON.
    #[error("user store is malformed at line {line}, column {column}")]
    MalformedStore {
        /// Line, counted from 1; 0 if unknown.
        line: usize,
        /// Column, counted from 1; 0 if unknown.
        column: usize,
    },
    /// The stored form is JSON with impossible content.
    #[error("user store is corrupt{}: {problem}", .user.as_ref().map(|u| format!(" at user {u:?}")).unwrap_or_default())]
    CorruptStore {
        /// The user whose entry is wrong, if the error is about one user.
        user: Option<String>,
        /// The error.
        problem: StoreProblem,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// Client: the server's message is not one of the mechanism, or is out of order.
    #[error("the server's SASL message is malformed or out of turn")]
    BadServerMessage,
    /// Client: the server refused, with a reason (`e=` of RFC 5802 section 7).
    #[error("the server refused the login: {0}")]
    ServerRefused(String),
    /// Client: the server could not prove that it knows the user's key. It may be an impostor.
    #[error("the server's signature is wrong: it does not know this user's key")]
    BadServerSignature,
}

/// The reason why a name is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UserNameProblem {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The name is too long: see [`USER_NAME_BYTES_MAX`] and [`DISPLAY_NAME_BYTES_MAX`].
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// The name contains a character that is not allowed.
    #[error("it holds {0:?}, which is not allowed")]
    Forbidden(char),
}

const _: () = assert!(USER_NAME_BYTES_MAX <= DISPLAY_NAME_BYTES_MAX);

/// The reason why a password is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PasswordProblem {
    /// The text is empty.
    #[error("it is empty")]
    Empty,
    /// The password is longer than [`PASSWORD_BYTES_MAX`].
    #[error("it is longer than {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// The password contains a NUL, which PLAIN cannot carry (RFC 4616 section 2).
    #[error("it holds a NUL character")]
    HoldsNul,
}

/// The reason why a role is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RoleProblem {
    /// The text is not `role`, `role[bucket]` or `role[bucket:scope:collection]`.
    #[error("it is not written as role, role[bucket] or role[bucket:scope:collection]")]
    Syntax,
    /// The role needs a bucket, or `*` for all.
    #[error("it needs a bucket, as in role[default] or role[*]")]
    BucketMissing,
    /// The role applies to the whole cluster.
    #[error("it takes no bucket")]
    BucketNotTaken,
    /// The role applies to whole buckets.
    #[error("it takes no scope or collection")]
    ScopeNotTaken,
    /// The role applies to whole scopes.
    #[error("it takes no collection")]
    CollectionNotTaken,
    /// The bucket name is invalid.
    #[error("it names an impossible bucket")]
    BucketName,
    /// The scope or collection name is invalid.
    #[error("it names an impossible scope or collection")]
    ScopeName,
}

/// The reason why the definition of a role is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RoleDefinitionProblem {
    /// There is a role of that name in the catalogue.
    #[error("there is a role of this name already, which is not defined by users")]
    InCatalogue,
    /// There is no such privilege that a role can grant.
    #[error("there is no privilege {0:?} that a role can grant")]
    Privilege(String),
    /// The privilege has no meaning for a part of what it is about.
    #[error("the privilege {privilege:?} is for a {extent} as a whole")]
    Extent {
        /// The privilege.
        privilege: &'static str,
        /// The smallest extent of a role that grants it.
        extent: &'static str,
    },
}

/// The reason why a stored form is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// The fallback salt key is not 32 bytes in base64.
    #[error("the fallback salt key is not 32 bytes in base64")]
    FallbackKey,
    /// A salt is not base64 of a sensible length.
    #[error("a salt is not 8 to 64 bytes in base64")]
    Salt,
    /// A key is not base64 of the length that its mechanism has.
    #[error("a key is not base64 of its mechanism's length")]
    Key,
    /// An iteration count is out of range.
    #[error("an iteration count is out of range")]
    Iterations,
    /// The cost of an argon2id hash is out of range.
    #[error("the cost of an argon2id hash is out of range")]
    HashCost,
    /// A user occurs twice.
    #[error("the user is there twice")]
    Duplicate,
    /// A document of a user or group has another name than the user or group, or a reserved one.
    #[error("its document has another name")]
    Name,
    /// A group occurs twice.
    #[error("a group is there twice")]
    DuplicateGroup,
    /// A defined role occurs twice, or its extent is unknown.
    #[error("a role is defined twice, or for nothing that is known")]
    Role,
}
