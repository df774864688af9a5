//! Values on their way in: what they are made of, and how they are kept.

use kedge_types::limits::{INFLATED_BYTES_MAX, VALUE_BYTES_MAX};
use kedge_types::{Datatype, Status};
use std::borrow::Cow;

/// What is done with compressed values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompressionMode {
    /// Values are kept inflated.
    Off,
    /// What a client sent compressed is kept so.
    #[default]
    Passive,
}

/// A value that was looked at and may be stored.
#[derive(Debug)]
pub struct NewValue<'a> {
    /// The bytes to store.
    pub bytes: Cow<'a, [u8]>,
    /// What they are made of. The JSON bit was set here, not by the client.
    pub datatype: Datatype,
}

impl<'a> NewValue<'a> {
    /// Checks what a client sent. Whether it is JSON is found out here, once; the client's own JSON bit is ignored.
    ///
    /// # Errors
    /// `Invalid` when it says that it is Snappy and is not, or has extended attributes (only special commands may
    /// send these); `TooBig` when it is larger than [`VALUE_BYTES_MAX`] after inflation.
    pub fn check(
        bytes: &'a [u8],
        datatype: Datatype,
        mode: CompressionMode,
    ) -> Result<Self, Status> {
        if datatype.contains(Datatype::XATTR) {
            return Err(Status::Invalid);
        }
        if !datatype.contains(Datatype::SNAPPY) {
            return Self::plain(Cow::Borrowed(bytes));
        }
        let plain = Self::plain(Cow::Owned(inflate(bytes)?))?;
        if mode == CompressionMode::Off || plain.bytes.len() <= bytes.len() {
            return Ok(plain);
        }
        Ok(Self {
            bytes: Cow::Borrowed(bytes),
            datatype: plain.datatype.union(Datatype::SNAPPY),
        })
    }

    /// A value that is not compressed.
    ///
    /// # Errors
    /// `TooBig` when it is larger than [`VALUE_BYTES_MAX`].
    pub fn plain(bytes: Cow<'a, [u8]>) -> Result<Self, Status> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(Status::TooBig);
        }
        let datatype = if kedge_json::is_json(&bytes) {
            Datatype::JSON
        } else {
            Datatype::RAW
        };
        Ok(Self { bytes, datatype })
    }
}

/// Inflates one raw Snappy block.
///
/// # Errors
/// `Invalid` when it is none, `TooBig` when it claims to be larger than [`INFLATED_BYTES_MAX`].
pub(crate) fn inflate(bytes: &[u8]) -> Result<Vec<u8>, Status> {
    let claimed = snap::raw::decompress_len(bytes).map_err(|_| Status::Invalid)?;
    if claimed > INFLATED_BYTES_MAX {
        return Err(Status::TooBig);
    }
    snap::raw::Decoder::new()
        .decompress_vec(bytes)
        .map_err(|_| Status::Invalid)
}

/// The value without compression.
pub(crate) fn inflated(value: &[u8], datatype: Datatype) -> Result<Cow<'_, [u8]>, Status> {
    if datatype.contains(Datatype::SNAPPY) {
        inflate(value).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compress(bytes: &[u8]) -> Vec<u8> {
        snap::raw::Encoder::new().compress_vec(bytes).unwrap()
    }

    #[test]
    fn json_is_found_out_whatever_the_client_says() {
        for (text, said, expected) in [
            (&br#"{"a":1}"#[..], Datatype::RAW, Datatype::JSON),
            (b"not json", Datatype::JSON, Datatype::RAW),
            (b"12", Datatype::RAW, Datatype::JSON),
            (b"", Datatype::JSON, Datatype::RAW),
        ] {
            let value = NewValue::check(text, said, CompressionMode::Passive).unwrap();
            assert_eq!((value.datatype, &*value.bytes), (expected, text));
        }
    }

    #[test]
    fn compressed_values_are_checked_and_kept_as_the_mode_says() {
        let json = br#"{"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
        let packed = compress(json);
        let kept = NewValue::check(&packed, Datatype::SNAPPY, CompressionMode::Passive).unwrap();
        assert_eq!(kept.datatype, Datatype::JSON.union(Datatype::SNAPPY));
        assert_eq!(&*kept.bytes, &packed[..]);
        let plain = NewValue::check(&packed, Datatype::SNAPPY, CompressionMode::Off).unwrap();
        assert_eq!((plain.datatype, &*plain.bytes), (Datatype::JSON, &json[..]));
        let grown = compress(b"xyz");
        let value = NewValue::check(&grown, Datatype::SNAPPY, CompressionMode::Passive).unwrap();
        assert_eq!(
            (value.datatype, &*value.bytes),
            (Datatype::RAW, &b"xyz"[..]),
            "larger than plain"
        );
    }

    #[test]
    fn lies_are_refused() {
        let off = CompressionMode::Off;
        assert_eq!(
            NewValue::check(b"\xff\xff\xff", Datatype::SNAPPY, off).unwrap_err(),
            Status::Invalid
        );
        let claims_a_gigabyte = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00];
        assert_eq!(
            NewValue::check(&claims_a_gigabyte, Datatype::SNAPPY, off).unwrap_err(),
            Status::TooBig
        );
        assert_eq!(
            NewValue::check(b"x", Datatype::XATTR, off).unwrap_err(),
            Status::Invalid
        );
        let large = vec![b'x'; VALUE_BYTES_MAX + 1];
        assert_eq!(
            NewValue::check(&large, Datatype::RAW, off).unwrap_err(),
            Status::TooBig
        );
        let bomb = compress(&large);
        assert_eq!(
            NewValue::check(&bomb, Datatype::SNAPPY, off).unwrap_err(),
            Status::TooBig
        );
    }
}
