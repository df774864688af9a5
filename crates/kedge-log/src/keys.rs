//! The keys of encrypted segments, which the owner of the log supplies.

use std::fmt;

use zeroize::Zeroizing;

/// Length of a key, in bytes: AES-256.
pub const KEY_BYTES: usize = 32;
/// Length of the longest id of a key, in bytes.
pub const KEY_ID_BYTES_MAX: usize = 255;

/// The keys of a log. The log asks for the active key at each new segment, and for others by the ids that the headers
/// of segments state, at an open.
pub trait SegmentKeys: fmt::Debug + Send + Sync {
    /// Returns the key that new segments are encrypted with. Without one they are plain.
    fn active(&self) -> Option<SegmentKey>;

    /// Returns the key with the id, active or not, or `None` if there is none.
    fn find(&self, id: &str) -> Option<SegmentKey>;
}

/// The keys of a log that is not encrypted: there are none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoKeys;

impl SegmentKeys for NoKeys {
    fn active(&self) -> Option<SegmentKey> {
        None
    }

    fn find(&self, _: &str) -> Option<SegmentKey> {
        None
    }
}

/// A named key, from which a separate key of each encrypted segment is derived.
#[derive(Clone)]
pub struct SegmentKey {
    id: String,
    secret: Zeroizing<[u8; KEY_BYTES]>,
}

impl SegmentKey {
    /// Creates a key with the id that the headers of segments state.
    ///
    /// # Panics
    /// Panics if the id is empty or longer than [`KEY_ID_BYTES_MAX`].
    #[must_use]
    pub fn new(id: impl Into<String>, secret: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let id = id.into();
        assert!(
            (1..=KEY_ID_BYTES_MAX).contains(&id.len()),
            "the id of a key has 1 to {KEY_ID_BYTES_MAX} bytes"
        );
        Self { id, secret }
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn secret(&self) -> &[u8; KEY_BYTES] {
        &self.secret
    }
}

impl fmt::Debug for SegmentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentKey({:?})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_a_key_has_no_secret() {
        let key = SegmentKey::new("k1", Zeroizing::new([0xab; KEY_BYTES]));
        assert_eq!(format!("{key:?}"), "SegmentKey(\"k1\")");
    }
}
