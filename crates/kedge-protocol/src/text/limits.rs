//! Limits of the text protocol.

pub use kedge_types::limits::KEY_BYTES_MAX;
use kedge_types::limits::VALUE_BYTES_MAX;

/// Longest line of a command, line end included, in bytes (memcached's own limit for a line that is not a retrieval).
pub const LINE_BYTES_MAX: usize = 2048;
/// Longest line of a retrieval, which may name many keys, in bytes (1 MiB): 4,000 keys of the longest.
pub const RETRIEVAL_LINE_BYTES_MAX: usize = 1 << 20;
/// Longest value of the `set` that is a login, in bytes (memcached's own limit).
pub const LOGIN_VALUE_BYTES_MAX: usize = 16 << 10;
/// Longest opaque token of a meta command, in bytes (memcached doc/protocol.txt, "Meta Get").
pub const OPAQUE_BYTES_MAX: usize = 32;
/// Values with a length beyond this are a malformed line and not a too large value, as in memcached, where the length
/// is a signed 32-bit number that must leave room for the line end.
pub const VALUE_LENGTH_MAX: u64 = i32::MAX as u64 - 2;

// A command with the longest key, all numbers at their longest and every flag has to fit in a line.
const _: () = assert!(LINE_BYTES_MAX >= KEY_BYTES_MAX + 1024);
const _: () = assert!(RETRIEVAL_LINE_BYTES_MAX >= 4_000 * (KEY_BYTES_MAX + 1));
const _: () = assert!(VALUE_BYTES_MAX as u64 <= VALUE_LENGTH_MAX);

/// The limits of [`parse`](super::parse).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLimits {
    /// Longest line, line end included, in bytes. A longer one closes the connection.
    pub line_bytes_max: usize,
    /// Longest line of `get`, `gets`, `gat` and `gats`, line end included, in bytes; at least `line_bytes_max`.
    pub retrieval_line_bytes_max: usize,
    /// Largest value, in bytes. A larger one is skipped and refused.
    pub value_bytes_max: usize,
}

impl Default for TextLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: LINE_BYTES_MAX,
            retrieval_line_bytes_max: RETRIEVAL_LINE_BYTES_MAX,
            value_bytes_max: VALUE_BYTES_MAX,
        }
    }
}
