//! The limits of this crate. Exceeding one is a named error, never a crash.

/// The longest user name, in bytes (as in Couchbase's management interface).
pub const USER_NAME_BYTES_MAX: usize = 128;

/// The prefix of the names of users and groups that are reserved for the server.
pub const RESERVED_PREFIX: &str = "kedge.";

/// Longest display name, in bytes.
pub const DISPLAY_NAME_BYTES_MAX: usize = 256;

/// Longest password, in bytes.
pub const PASSWORD_BYTES_MAX: usize = 1_024;

/// The longest accepted SASL message, in bytes. A longer one fails the login.
pub const MESSAGE_BYTES_MAX: usize = 4_096;

/// Most users in one store.
pub const USERS_MAX: usize = 16_384;

/// Most users of one `authfile` of the memcached port: each is compared at each login.
pub const AUTH_FILE_USERS_MAX: usize = 1_024;

/// Most roles of one user.
pub const ROLES_PER_USER_MAX: usize = 256;

/// Most groups in one store.
pub const GROUPS_MAX: usize = 1_024;

/// Most roles that administrators define.
pub const CUSTOM_ROLES_MAX: usize = 256;

/// Most groups of one user.
pub const GROUPS_PER_USER_MAX: usize = 64;

/// The default PBKDF2 iterations of a new password: the minimum that RFC 7677 section 4 allows. Each SCRAM client pays
/// for it at each connection.
pub const ITERATIONS_DEFAULT: u32 = 4_096;

/// The fewest PBKDF2 iterations, for a store and for a server that our client talks to (RFC 7677 section 4).
pub const ITERATIONS_MIN: u32 = 4_096;

/// The most PBKDF2 iterations. They limit the duration of one PLAIN login here, and the time for which a hostile server
/// can keep our client busy (RFC 5802 section 9).
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// The default memory of the argon2id hash of a new password, in KiB: the recommendation of OWASP for 2 passes.
pub const HASH_MEMORY_KIB_DEFAULT: u32 = 19 << 10;

/// The least memory of an argon2id hash with one lane, in KiB (RFC 9106 section 3.1).
pub const HASH_MEMORY_KIB_MIN: u32 = 8;

/// The most memory of an argon2id hash, in KiB. A server computes one for logins at a time.
pub const HASH_MEMORY_KIB_MAX: u32 = 1 << 20;

/// The default number of passes of an argon2id hash.
pub const HASH_PASSES_DEFAULT: u32 = 2;

/// The fewest passes of an argon2id hash (RFC 9106 section 3.1).
pub const HASH_PASSES_MIN: u32 = 1;

/// The most passes of an argon2id hash: they limit the duration of a login.
pub const HASH_PASSES_MAX: u32 = 64;

/// Length of an argon2id hash, in bytes.
pub(crate) const HASH_BYTES: usize = 32;

/// Length of a new salt, in bytes.
pub(crate) const SALT_BYTES: usize = 16;

/// Shortest and longest salt from a stored file or a server, in bytes.
pub(crate) const SALT_BYTES_MIN: usize = 8;
/// See [`SALT_BYTES_MIN`].
pub(crate) const SALT_BYTES_MAX: usize = 64;

/// Length of the key from which fake salts are derived, in bytes.
pub(crate) const FALLBACK_KEY_BYTES: usize = 32;

/// Randomness in a nonce, in bytes; a multiple of 3, so that base64 needs no padding.
pub(crate) const NONCE_BYTES: usize = 24;

/// Most users whose verified password is remembered (about 200 bytes each).
pub(crate) const VERIFIED_MAX: usize = 1_024;

/// Longest name of a bucket in a role, in bytes.
pub(crate) const BUCKET_NAME_BYTES_MAX: usize = 100;

/// Longest name of a scope or collection in a role, in bytes.
pub(crate) const SCOPE_NAME_BYTES_MAX: usize = 251;

// A login message must be able to carry the longest name, twice escaped by a factor of three
// (authorisation identity and user name), and the longest password.
const _: () = assert!(2 * 3 * USER_NAME_BYTES_MAX + PASSWORD_BYTES_MAX < MESSAGE_BYTES_MAX);
const _: () = assert!(SALT_BYTES >= SALT_BYTES_MIN && SALT_BYTES <= SALT_BYTES_MAX);
const _: () = assert!(ITERATIONS_MIN <= ITERATIONS_DEFAULT && ITERATIONS_DEFAULT <= ITERATIONS_MAX);
const _: () = assert!(HASH_MEMORY_KIB_MIN <= HASH_MEMORY_KIB_DEFAULT);
const _: () = assert!(HASH_MEMORY_KIB_DEFAULT <= HASH_MEMORY_KIB_MAX);
const _: () =
    assert!(HASH_PASSES_MIN <= HASH_PASSES_DEFAULT && HASH_PASSES_DEFAULT <= HASH_PASSES_MAX);
const _: () = assert!(NONCE_BYTES.is_multiple_of(3));
