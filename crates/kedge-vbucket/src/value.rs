//! Values on their way in: what they are made of, and how they are kept.

use crate::item::Item;
use kedge_types::limits::{INFLATED_BYTES_MAX, VALUE_BYTES_MAX};
use kedge_types::{Datatype, Status, Xattrs, check_xattr_sizes, split_xattrs};
use std::borrow::Cow;

/// How much smaller compression has to make a value for it to be kept compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRatio {
    hundredths: u32,
}

impl MinRatio {
    /// Nothing is kept compressed.
    pub const NEVER: Self = Self {
        hundredths: u32::MAX,
    };
    /// The default: a sixth must be saved at least.
    pub const DEFAULT: Self = Self { hundredths: 120 };

    /// Inflated bytes for each compressed byte, 1 to 1,000, rounded to hundredths; `None` for another number.
    #[must_use]
    pub fn new(ratio: f64) -> Option<Self> {
        let hundredths = (ratio * 100.0).round();
        (100.0..=100_000.0).contains(&hundredths).then_some(Self {
            hundredths: hundredths as u32,
        })
    }

    /// Inflated bytes for each compressed byte.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.hundredths) / 100.0
    }

    /// The ratio in hundredths, as [`MinRatio::from_hundredths`] takes it.
    #[must_use]
    pub fn hundredths(self) -> u32 {
        self.hundredths
    }

    /// See [`MinRatio::hundredths`].
    #[must_use]
    pub fn from_hundredths(hundredths: u32) -> Self {
        Self { hundredths }
    }

    fn is_reached(self, inflated: usize, compressed: usize) -> bool {
        compressed < inflated
            && inflated as u64 * 100 >= compressed as u64 * u64::from(self.hundredths)
    }
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
    /// Checks what a client sent. Whether it is JSON is found out here, once; the client's own JSON bit is ignored. A
    /// value that came compressed stays so if it is `min_ratio` smaller.
    ///
    /// # Errors
    /// `Invalid` when it says that it is Snappy and is not, or has extended attributes (only special commands may
    /// send these); `TooBig` when it is larger than [`VALUE_BYTES_MAX`] after inflation.
    pub fn check(bytes: &'a [u8], datatype: Datatype, min_ratio: MinRatio) -> Result<Self, Status> {
        if datatype.contains(Datatype::XATTR) {
            return Err(Status::Invalid);
        }
        if !datatype.contains(Datatype::SNAPPY) {
            return Self::plain(Cow::Borrowed(bytes));
        }
        let plain = Self::plain(Cow::Owned(inflate(bytes)?))?;
        if !min_ratio.is_reached(plain.bytes.len(), bytes.len()) {
            return Ok(plain);
        }
        Ok(Self {
            bytes: Cow::Borrowed(bytes),
            datatype: plain.datatype.union(Datatype::SNAPPY),
        })
    }

    /// What a tombstone has.
    #[must_use]
    pub fn of_deletion() -> Self {
        Self {
            bytes: Cow::Borrowed(&[]),
            datatype: Datatype::RAW,
        }
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

    /// The same body behind the extended attributes of the document that it takes the place of.
    ///
    /// # Errors
    /// `TooBig` when both together are; `XattrInvalid` when `old` is damaged.
    pub(crate) fn behind_xattrs_of(&self, old: &Item) -> Result<Self, Status> {
        let old = Parts::of(old)?;
        let body = inflated(&self.bytes, self.datatype)?;
        check_xattr_sizes(old.xattrs().iter(), body.len())?;
        Ok(Self {
            bytes: Cow::Owned([old.section(), &body].concat()),
            datatype: self
                .datatype
                .without(Datatype::SNAPPY)
                .union(Datatype::XATTR),
        })
    }
}

/// A stored value, taken apart into extended attributes and body.
#[derive(Debug)]
pub struct Parts<'a> {
    bytes: Cow<'a, [u8]>,
    body: usize,
}

impl<'a> Parts<'a> {
    /// Of an item whose value is in memory.
    ///
    /// # Errors
    /// `Invalid`, `TooBig` or `XattrInvalid` when the value is not what its datatype says.
    pub fn of(item: &'a Item) -> Result<Self, Status> {
        let bytes = inflated(item.value(), item.datatype())?;
        let body = if item.has_xattrs() && !bytes.is_empty() {
            bytes.len() - split_xattrs(&bytes)?.1.len()
        } else {
            0
        };
        Ok(Self { bytes, body })
    }

    /// The extended attributes.
    #[must_use]
    pub fn xattrs(&self) -> Xattrs<'_> {
        split_xattrs(self.section()).map_or_else(|_| Xattrs::default(), |(xattrs, _)| xattrs)
    }

    /// The bytes of all extended attributes; none when there are no attributes.
    #[must_use]
    pub fn section(&self) -> &[u8] {
        &self.bytes[..self.body]
    }

    /// What clients call the value, not compressed.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    /// [`Self::body`], without a copy where that is possible.
    #[must_use]
    pub fn into_body(self) -> Cow<'a, [u8]> {
        match self.bytes {
            Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[self.body..]),
            Cow::Owned(mut bytes) => {
                bytes.drain(..self.body);
                Cow::Owned(bytes)
            }
        }
    }
}

/// The datatype and value of a document's tombstone: attributes of the system outlive the body.
///
/// # Errors
/// As [`Parts::of`].
pub(crate) fn kept_by_tombstone(old: &Item) -> Result<(Datatype, Vec<u8>), Status> {
    if !old.has_xattrs() {
        return Ok(Default::default());
    }
    let kept = Parts::of(old)?.xattrs().system_section();
    let datatype = if kept.is_empty() {
        Datatype::RAW
    } else {
        Datatype::XATTR
    };
    Ok((datatype, kept))
}

/// Compresses values.
#[derive(Debug)]
pub struct Packer {
    encoder: snap::raw::Encoder,
    buffer: Vec<u8>,
}

impl Default for Packer {
    fn default() -> Self {
        Self {
            encoder: snap::raw::Encoder::new(),
            buffer: Vec::new(),
        }
    }
}

impl Packer {
    /// `value` as one raw Snappy block, if that is `min_ratio` smaller.
    pub fn pack(&mut self, value: &[u8], min_ratio: MinRatio) -> Option<&[u8]> {
        let len_max = snap::raw::max_compress_len(value.len());
        if self.buffer.len() < len_max {
            self.buffer.resize(len_max, 0);
        }
        let len = self.encoder.compress(value, &mut self.buffer).ok()?;
        min_ratio
            .is_reached(value.len(), len)
            .then(|| &self.buffer[..len])
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
            let value = NewValue::check(text, said, MinRatio::DEFAULT).unwrap();
            assert_eq!((value.datatype, &*value.bytes), (expected, text));
        }
    }

    #[test]
    fn compressed_values_are_checked_and_kept_as_the_mode_says() {
        let json = br#"{"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}"#;
        let packed = compress(json);
        let kept = NewValue::check(&packed, Datatype::SNAPPY, MinRatio::DEFAULT).unwrap();
        assert_eq!(kept.datatype, Datatype::JSON.union(Datatype::SNAPPY));
        assert_eq!(&*kept.bytes, &packed[..]);
        let plain = NewValue::check(&packed, Datatype::SNAPPY, MinRatio::NEVER).unwrap();
        assert_eq!((plain.datatype, &*plain.bytes), (Datatype::JSON, &json[..]));
        let grown = compress(b"xyz");
        let value = NewValue::check(&grown, Datatype::SNAPPY, MinRatio::DEFAULT).unwrap();
        assert_eq!(
            (value.datatype, &*value.bytes),
            (Datatype::RAW, &b"xyz"[..]),
            "larger than plain"
        );
    }

    #[test]
    fn a_value_is_compressed_when_that_saves_enough() {
        // A third of it is the same byte.
        let mut random = 1u32;
        let mut next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 24) as u8
        };
        let mut value = vec![b'x'; 1_000];
        value.extend((0..2_000).map(|_| next()));
        let mut packer = Packer::default();
        let ratio = |ratio| MinRatio::new(ratio).unwrap();
        let packed = packer.pack(&value, ratio(1.4)).unwrap().to_vec();
        assert_eq!(inflate(&packed).unwrap(), value);
        assert_eq!(packer.pack(&value, ratio(1.6)), None);
        let kept = |min| {
            let checked = NewValue::check(&packed, Datatype::SNAPPY, min).unwrap();
            checked.datatype.contains(Datatype::SNAPPY)
        };
        assert!(kept(ratio(1.4)) && !kept(ratio(1.6)));
        assert_eq!(packer.pack(b"", ratio(1.0)), None);
        assert_eq!(packer.pack(&[b'x'; 9_999], MinRatio::NEVER), None);
        assert_eq!((MinRatio::new(0.99), MinRatio::new(f64::NAN)), (None, None));
        assert_eq!(ratio(1.2), MinRatio::DEFAULT);
    }

    #[test]
    fn lies_are_refused() {
        let off = MinRatio::NEVER;
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
