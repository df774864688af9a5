//! Keys of meta commands, which may be written in base64.

use crate::text::line::is_key;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kedge_types::limits::KEY_BYTES_MAX;

/// The key of a meta command: text as in the classic commands, or with flag `b` any bytes in base64 (RFC 4648 section
/// 4, padded). The written form has 1 to 250 bytes, also in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaKey<'a> {
    written: &'a [u8],
    base64: bool,
}

impl<'a> MetaKey<'a> {
    /// Creates a text key; `None` if `written` is invalid.
    pub(super) fn plain(written: &'a [u8]) -> Option<Self> {
        is_key(written).then_some(Self {
            written,
            base64: false,
        })
    }

    /// Returns the same key with flag `b`; `None` if it is not base64 of at least one byte.
    pub(super) fn into_base64(self) -> Option<Self> {
        let key = Self {
            base64: true,
            ..self
        };
        (!key.decode(&mut [0; KEY_BYTES_MAX])?.is_empty()).then_some(key)
    }

    /// Returns the key as the client wrote it, and as a reply shows it.
    #[must_use]
    pub const fn written(&self) -> &'a [u8] {
        self.written
    }

    /// Returns whether the client wrote the key in base64.
    #[must_use]
    pub const fn is_base64(&self) -> bool {
        self.base64
    }

    /// Returns the key's bytes, 1 to 250 of them, decoded into `scratch` if they are base64.
    #[must_use]
    pub fn bytes<'b>(&self, scratch: &'b mut [u8; KEY_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.base64 {
            self.decode(scratch).unwrap_or_default()
        } else {
            self.written
        }
    }

    fn decode<'b>(&self, scratch: &'b mut [u8; KEY_BYTES_MAX]) -> Option<&'b [u8]> {
        let len = STANDARD.decode_slice(self.written, scratch).ok()?;
        Some(&scratch[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded_and_checked() {
        for (written, bytes) in [
            ("Zm9v", Some(b"foo".as_slice())),
            ("Zm8=", Some(b"fo")),
            ("AA==", Some(b"\x00")),
            ("gP/+IA==", Some(b"\x80\xff\xfe ")),
            ("Zm8", None),
            ("Zm9=", None),
            ("Zm9v=", None),
            ("-_-_", None),
            ("====", None),
            ("k", None),
        ] {
            let key = MetaKey::plain(written.as_bytes()).expect(written);
            let mut scratch = [0; KEY_BYTES_MAX];
            assert_eq!(key.bytes(&mut scratch), written.as_bytes());
            let key = key.into_base64();
            assert_eq!(key.is_some(), bytes.is_some(), "{written}");
            if let (Some(key), Some(bytes)) = (key, bytes) {
                assert_eq!(key.bytes(&mut scratch), bytes, "{written}");
                assert_eq!(key.written(), written.as_bytes());
            }
        }
    }

    #[test]
    fn the_longest_base64_key_fits() {
        let written = [b'A'; 248];
        let key = MetaKey::plain(&written).and_then(MetaKey::into_base64);
        let mut scratch = [1; KEY_BYTES_MAX];
        assert_eq!(key.expect("base64").bytes(&mut scratch), [0; 186]);
    }
}
