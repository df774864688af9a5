//! Validation and compression of values.

use crate::item::Item;
use kedge_types::limits::{INFLATED_BYTES_MAX, VALUE_BYTES_MAX};
use kedge_types::setting::{SettingValue, expected};
use kedge_types::{Datatype, Status, Xattrs, check_xattr_name, check_xattr_sizes, split_xattrs};
use std::borrow::Cow;
use std::collections::HashSet;

/// The least compression ratio at which a value is kept compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinRatio {
    hundredths: u32,
}

impl SettingValue for MinRatio {
    const KIND: &'static str = "a number from 1 to 1000, such as 1.2";

    fn read(text: &str) -> Result<Self, String> {
        let number = text.parse().ok();
        number.and_then(Self::new).ok_or_else(expected::<Self>)
    }

    fn show(&self) -> String {
        self.get().to_string()
    }
}

impl MinRatio {
    /// No value is kept compressed.
    pub const NEVER: Self = Self {
        hundredths: u32::MAX,
    };
    /// The default: compression must save at least a sixth.
    pub const DEFAULT: Self = Self { hundredths: 120 };

    /// Creates a ratio of inflated to compressed bytes, 1 to 1,000, rounded to hundredths. Returns `None` outside this
    /// range.
    #[must_use]
    pub fn new(ratio: f64) -> Option<Self> {
        let hundredths = (ratio * 100.0).round();
        (100.0..=100_000.0).contains(&hundredths).then_some(Self {
            hundredths: hundredths as u32,
        })
    }

    /// Returns the ratio of inflated to compressed bytes.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.hundredths) / 100.0
    }

    /// Returns the ratio in hundredths, as [`MinRatio::from_hundredths`] accepts it.
    #[must_use]
    pub fn hundredths(self) -> u32 {
        self.hundredths
    }

    /// Creates a ratio from hundredths, see [`MinRatio::hundredths`].
    #[must_use]
    pub fn from_hundredths(hundredths: u32) -> Self {
        Self { hundredths }
    }

    fn is_reached(self, inflated: usize, compressed: usize) -> bool {
        compressed < inflated
            && inflated as u64 * 100 >= compressed as u64 * u64::from(self.hundredths)
    }
}

/// A validated value that may be stored.
#[derive(Clone, Debug)]
pub struct NewValue<'a> {
    /// The bytes to store.
    pub bytes: Cow<'a, [u8]>,
    /// The datatype of the value. The JSON bit is determined here and not taken from the client.
    pub datatype: Datatype,
}

impl<'a> NewValue<'a> {
    /// Returns the value with owned bytes.
    #[must_use]
    pub fn into_owned(self) -> NewValue<'static> {
        NewValue {
            bytes: Cow::Owned(self.bytes.into_owned()),
            datatype: self.datatype,
        }
    }

    /// The same value, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> NewValue<'_> {
        NewValue {
            bytes: Cow::Borrowed(&self.bytes),
            datatype: self.datatype,
        }
    }

    /// Validates a value from a client. Determines whether it is JSON; the client's JSON bit is ignored. A compressed
    /// value stays compressed if it reaches `min_ratio`.
    ///
    /// # Errors
    /// `Invalid` if it has the Snappy datatype but is not Snappy, or if it has extended attributes, which only special
    /// commands may send; `TooBig` if it is larger than [`VALUE_BYTES_MAX`] after inflation.
    pub fn check(bytes: &'a [u8], datatype: Datatype, min_ratio: MinRatio) -> Result<Self, Status> {
        Self::check_inflated(bytes, datatype, min_ratio, || {})
    }

    /// Validates a value as [`Self::check`] does, and calls `inflated` between inflation and inspection.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_inflated(
        bytes: &'a [u8],
        datatype: Datatype,
        min_ratio: MinRatio,
        inflated: impl FnOnce(),
    ) -> Result<Self, Status> {
        if datatype.contains(Datatype::XATTR) {
            return Err(Status::Invalid);
        }
        Self::check_all(bytes, datatype, min_ratio, inflated)
    }

    /// Validates a value as [`Self::check`] does, but accepts extended attributes in front of the body. Removes an
    /// empty attribute section.
    ///
    /// # Errors
    /// `XattrInvalid` if the attributes exceed the value, a name is invalid or duplicate, or an attribute is not JSON;
    /// `TooBig` if the attributes alone or with the body are too large; otherwise as [`Self::check`].
    pub fn check_whole(
        bytes: &'a [u8],
        datatype: Datatype,
        min_ratio: MinRatio,
    ) -> Result<Self, Status> {
        Self::check_all(bytes, datatype, min_ratio, || {})
    }

    fn check_all(
        bytes: &'a [u8],
        datatype: Datatype,
        min_ratio: MinRatio,
        on_inflated: impl FnOnce(),
    ) -> Result<Self, Status> {
        let plain = inflated(bytes, datatype)?;
        on_inflated();
        let (plain_datatype, skipped) = match datatype.contains(Datatype::XATTR) {
            true => datatype_with_xattrs(&plain)?,
            false => (body_datatype(&plain)?, 0),
        };
        let is_packed = datatype.contains(Datatype::SNAPPY);
        let bytes = match (is_packed, skipped) {
            (true, 0) if min_ratio.is_reached(plain.len(), bytes.len()) => {
                return Ok(Self {
                    bytes: Cow::Borrowed(bytes),
                    datatype: plain_datatype.union(Datatype::SNAPPY),
                });
            }
            (_, 0) => plain,
            (false, _) => Cow::Borrowed(&bytes[skipped..]),
            (true, _) => Cow::Owned(plain[skipped..].to_vec()),
        };
        Ok(Self {
            bytes,
            datatype: plain_datatype,
        })
    }

    /// Validates the value of a replicated deletion: extended attributes, or nothing.
    ///
    /// # Errors
    /// `Invalid` if there is a body; otherwise as [`Self::check_whole`].
    pub fn check_deletion(bytes: &'a [u8], datatype: Datatype) -> Result<Self, Status> {
        let value = Self::check_whole(bytes, datatype, MinRatio::NEVER)?;
        if value.bytes.is_empty() {
            return Ok(Self::of_deletion());
        }
        let has_body =
            !value.datatype.contains(Datatype::XATTR) || !split_xattrs(&value.bytes)?.1.is_empty();
        if has_body {
            return Err(Status::Invalid);
        }
        Ok(value)
    }

    /// Returns the empty value of a tombstone.
    #[must_use]
    pub fn of_deletion() -> Self {
        Self {
            bytes: Cow::Borrowed(&[]),
            datatype: Datatype::RAW,
        }
    }

    /// Creates an uncompressed value.
    ///
    /// # Errors
    /// `TooBig` if it is larger than [`VALUE_BYTES_MAX`].
    pub fn plain(bytes: Cow<'a, [u8]>) -> Result<Self, Status> {
        let datatype = body_datatype(&bytes)?;
        Ok(Self { bytes, datatype })
    }

    /// Returns the body after the extended attributes of `old`, which it replaces.
    ///
    /// # Errors
    /// `TooBig` if both together are too large; `XattrInvalid` if `old` is damaged.
    pub(crate) fn behind_xattrs_of(&self, old: &Item) -> Result<Self, Status> {
        let old = ValueParts::of(old)?;
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

/// Returns the datatype of a body.
fn body_datatype(body: &[u8]) -> Result<Datatype, Status> {
    if body.len() > VALUE_BYTES_MAX {
        return Err(Status::TooBig);
    }
    Ok(match kedge_json::is_json(body) {
        true => Datatype::JSON,
        false => Datatype::RAW,
    })
}

/// Returns the datatype of extended attributes followed by a body, and the length of an empty attribute section at the
/// front.
fn datatype_with_xattrs(value: &[u8]) -> Result<(Datatype, usize), Status> {
    let (xattrs, body) = split_xattrs(value)?;
    if xattrs.is_empty() {
        return Ok((body_datatype(body)?, value.len() - body.len()));
    }
    let mut names = HashSet::new();
    for (name, text) in xattrs.iter() {
        check_xattr_name(name)?;
        if !names.insert(name) || !kedge_json::is_json(text) {
            return Err(Status::XattrInvalid);
        }
    }
    check_xattr_sizes(xattrs.iter(), body.len())?;
    Ok((body_datatype(body)?.union(Datatype::XATTR), 0))
}

/// A stored value, divided into extended attributes and body.
#[derive(Debug)]
pub struct ValueParts<'a> {
    bytes: Cow<'a, [u8]>,
    body: usize,
}

impl<'a> ValueParts<'a> {
    /// Divides the value of an item, which is in memory.
    ///
    /// # Errors
    /// `Invalid`, `TooBig` or `XattrInvalid` if the value contradicts its datatype.
    pub fn of(item: &'a Item) -> Result<Self, Status> {
        let bytes = inflated(item.value(), item.datatype())?;
        let body = if item.has_xattrs() && !bytes.is_empty() {
            bytes.len() - split_xattrs(&bytes)?.1.len()
        } else {
            0
        };
        Ok(Self { bytes, body })
    }

    /// Returns the extended attributes.
    #[must_use]
    pub fn xattrs(&self) -> Xattrs<'_> {
        split_xattrs(self.section()).map_or_else(|_| Xattrs::default(), |(xattrs, _)| xattrs)
    }

    /// Returns the encoded section of extended attributes, empty if there are none.
    #[must_use]
    pub fn section(&self) -> &[u8] {
        &self.bytes[..self.body]
    }

    /// Returns the uncompressed body.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body..]
    }

    /// Returns [`Self::body`], without a copy if possible.
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

/// Returns the datatype and the value of a document's tombstone, which keeps the system attributes.
///
/// # Errors
/// As [`ValueParts::of`].
pub(crate) fn kept_by_tombstone(old: &Item) -> Result<(Datatype, Vec<u8>), Status> {
    if !old.has_xattrs() {
        return Ok(Default::default());
    }
    let kept = ValueParts::of(old)?.xattrs().system_section();
    let datatype = if kept.is_empty() {
        Datatype::RAW
    } else {
        Datatype::XATTR
    };
    Ok((datatype, kept))
}

/// A compressor for values.
#[derive(Debug)]
pub struct ValueCompressor {
    encoder: snap::raw::Encoder,
    buffer: Vec<u8>,
}

impl Default for ValueCompressor {
    fn default() -> Self {
        Self {
            encoder: snap::raw::Encoder::new(),
            buffer: Vec::new(),
        }
    }
}

impl ValueCompressor {
    /// Compresses `value` into a raw Snappy block. Returns `None` if the block does not reach `min_ratio`.
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

/// Inflates a raw Snappy block.
///
/// # Errors
/// `Invalid` if it is not a Snappy block; `TooBig` if its length field exceeds [`INFLATED_BYTES_MAX`].
pub(crate) fn inflate(bytes: &[u8]) -> Result<Vec<u8>, Status> {
    let claimed = snap::raw::decompress_len(bytes).map_err(|_| Status::Invalid)?;
    if claimed > INFLATED_BYTES_MAX {
        return Err(Status::TooBig);
    }
    snap::raw::Decoder::new()
        .decompress_vec(bytes)
        .map_err(|_| Status::Invalid)
}

/// Returns the uncompressed value.
pub(crate) fn inflated(value: &[u8], datatype: Datatype) -> Result<Cow<'_, [u8]>, Status> {
    if datatype.contains(Datatype::SNAPPY) {
        inflate(value).map(Cow::Owned)
    } else {
        Ok(Cow::Borrowed(value))
    }
}

#[cfg(test)]
mod tests;
