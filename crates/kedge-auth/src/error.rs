//! What can go wrong, in one type.

use thiserror::Error;

use crate::limits::{
    DISPLAY_NAME_BYTES_MAX, GROUPS_MAX, GROUPS_PER_USER_MAX, ITERATIONS_MAX, ITERATIONS_MIN,
    PASSWORD_BYTES_MAX, RESERVED_PREFIX, ROLES_PER_USER_MAX, USER_NAME_BYTES_MAX, USERS_MAX,
};

/// An operation on users, roles, the stored form or a client's login failed.
///
/// A login that a *server* refuses is no error but [`Step::Failed`](crate::Step::Failed). No
/// message holds a password, a key or text out of the stored file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Error {
    /// The user name cannot be used.
    #[error("bad user name: {0}")]
    BadName(NameProblem),
    /// The name is kept for the server itself: see [`is_reserved`](crate::is_reserved).
    #[error(
        "the name {0:?} is reserved: names that begin with \"{RESERVED_PREFIX}\" are the server's own"
    )]
    ReservedName(String),
    /// The display name is too long or holds control characters.
    #[error("bad display name: {0}")]
    BadDisplayName(NameProblem),
    /// The password cannot be used.
    #[error("bad password: {0}")]
    BadPassword(PasswordProblem),
    /// There is no such user.
    #[error("unknown user {0:?}")]
    UnknownUser(String),
    /// The user is already there.
    #[error("user {0:?} exists")]
    UserExists(String),
    /// The store is full.
    #[error("too many users: the limit is {USERS_MAX}")]
    TooManyUsers,
    /// There is no such group.
    #[error("unknown group {0:?}")]
    UnknownGroup(String),
    /// The name of a group cannot be used.
    #[error("bad group name: {0}")]
    BadGroupName(NameProblem),
    /// A group's description is too long or holds control characters.
    #[error("bad description: {0}")]
    BadDescription(NameProblem),
    /// The store is full of groups, or a user would be in too many.
    #[error("too many groups: the limit is {GROUPS_MAX}, and {GROUPS_PER_USER_MAX} per user")]
    TooManyGroups,
    /// Who makes the change may not give, change or take such rights.
    #[error("only a full administrator may change who can give rights to others")]
    Guarded,
    /// No role has this name.
    #[error("unknown role {0:?}")]
    UnknownRole(String),
    /// A role is known but badly written.
    #[error("bad role {role:?}: {problem}")]
    BadRole {
        /// The role as it was given.
        role: String,
        /// What is wrong with it.
        problem: RoleProblem,
    },
    /// A user would have too many roles.
    #[error("too many roles: the limit is {ROLES_PER_USER_MAX} per user")]
    TooManyRoles,
    /// The iteration count is out of range.
    #[error("{0} iterations: must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")]
    BadIterations(u32),
    /// No SASL mechanism has this name.
    #[error("unknown SASL mechanism {0:?}")]
    UnknownMechanism(String),
    /// The stored form is of a version that this program does not know: use a newer one.
    #[error("user store of version {found}: this program reads version {supported}")]
    UnsupportedVersion {
        /// The version in the text.
        found: u64,
        /// The only version that can be read.
        supported: u64,
    },
    /// The stored form is not the JSON that is expected.
    #[error("user store is malformed at line {line}, column {column}")]
    MalformedStore {
        /// Line, counted from 1; 0 if unknown.
        line: usize,
        /// Column, counted from 1; 0 if unknown.
        column: usize,
    },
    /// The stored form is JSON, but what it says cannot be.
    #[error("user store is corrupt{}: {problem}", .user.as_ref().map(|u| format!(" at user {u:?}")).unwrap_or_default())]
    CorruptStore {
        /// The user whose entry is wrong, if it is one user's.
        user: Option<String>,
        /// What is wrong.
        problem: StoreProblem,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// Client: what the server sent is not a message of the mechanism, or comes out of turn.
    #[error("the server's SASL message is malformed or out of turn")]
    BadServerMessage,
    /// Client: the server said why it refuses (`e=` of RFC 5802 section 7).
    #[error("the server refused the login: {0}")]
    ServerRefused(String),
    /// Client: the server could not prove that it knows the user's key. It may be an impostor.
    #[error("the server's signature is wrong: it does not know this user's key")]
    BadServerSignature,
}

/// Why a name cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is too long: see [`USER_NAME_BYTES_MAX`] and [`DISPLAY_NAME_BYTES_MAX`].
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// It holds a character that is not allowed.
    #[error("it holds {0:?}, which is not allowed")]
    Forbidden(char),
}

const _: () = assert!(USER_NAME_BYTES_MAX <= DISPLAY_NAME_BYTES_MAX);

/// Why a password cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PasswordProblem {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It is longer than [`PASSWORD_BYTES_MAX`].
    #[error("it is longer than {PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    /// It holds a NUL, which PLAIN cannot carry (RFC 4616 section 2).
    #[error("it holds a NUL character")]
    HoldsNul,
}

/// Why a role cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RoleProblem {
    /// Not `role`, `role[bucket]` or `role[bucket:scope:collection]`.
    #[error("it is not written as role, role[bucket] or role[bucket:scope:collection]")]
    Syntax,
    /// The role needs a bucket, or `*` for all.
    #[error("it needs a bucket, as in role[default] or role[*]")]
    BucketMissing,
    /// The role holds for the whole cluster.
    #[error("it takes no bucket")]
    BucketNotTaken,
    /// The role holds for whole buckets.
    #[error("it takes no scope or collection")]
    ScopeNotTaken,
    /// The role holds for whole scopes.
    #[error("it takes no collection")]
    CollectionNotTaken,
    /// No bucket can be called that.
    #[error("it names an impossible bucket")]
    BucketName,
    /// No scope or collection can be called that.
    #[error("it names an impossible scope or collection")]
    ScopeName,
}

/// Why a stored form cannot be used.
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
    /// A user is there twice.
    #[error("the user is there twice")]
    Duplicate,
    /// A group is there twice.
    #[error("a group is there twice")]
    DuplicateGroup,
}
