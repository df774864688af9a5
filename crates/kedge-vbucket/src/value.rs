//! Values on their way in: what they are made of, and how they are kept.

use crate::item::Item;
use kedge_types::limits::{INFLATED_BYTES_MAX, VALUE_BYTES_MAX};
use kedge_types::setting::{SettingValue, expected};
use kedge_types::{Datatype, Status, Xattrs, check_xattr_name, check_xattr_sizes, split_xattrs};
use std::borrow::Cow;
use std::collections::HashSet;

/// The least ratio of plain to compressed size at which a value is kept compressed.
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
#[derive(Clone, Debug)]
pub struct NewValue<'a> {
    /// The bytes to store.
    pub bytes: Cow<'a, [u8]>,
    /// The datatype of the value. The JSON bit was set here, not by the client.
    pub datatype: Datatype,
}

impl<'a> NewValue<'a> {
    /// The same value in bytes of its own.
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

    /// Checks what a client sent. Whether it is JSON is found out here, once; the client's own JSON bit is ignored. A
    /// value that came compressed stays so if it is `min_ratio` smaller.
    ///
    /// # Errors
    /// `Invalid` when it says that it is Snappy and is not, or has extended attributes (only special commands may
    /// send these); `TooBig` when it is larger than [`VALUE_BYTES_MAX`] after inflation.
    pub fn check(bytes: &'a [u8], datatype: Datatype, min_ratio: MinRatio) -> Result<Self, Status> {
        Self::check_telling(bytes, datatype, min_ratio, || {})
    }

    /// [`Self::check`] that calls `inflated` when the value is not compressed any more, and is to be looked at.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_telling(
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

    /// [`Self::check`] of a value that may have extended attributes in front of its body. If it has none, their empty
    /// section is cut off.
    ///
    /// # Errors
    /// `XattrInvalid` when they do not end within the value, one has a name that may not be stored or that another has,
    /// or its value is no JSON; `TooBig` when they are, or together with the body; else as [`Self::check`].
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
        tell_inflated: impl FnOnce(),
    ) -> Result<Self, Status> {
        let plain = inflated(bytes, datatype)?;
        tell_inflated();
        let (made_of, skipped) = match datatype.contains(Datatype::XATTR) {
            true => made_of_both(&plain)?,
            false => (made_of(&plain)?, 0),
        };
        let is_packed = datatype.contains(Datatype::SNAPPY);
        let bytes = match (is_packed, skipped) {
            (true, 0) if min_ratio.is_reached(plain.len(), bytes.len()) => {
                return Ok(Self {
                    bytes: Cow::Borrowed(bytes),
                    datatype: made_of.union(Datatype::SNAPPY),
                });
            }
            (_, 0) => plain,
            (false, _) => Cow::Borrowed(&bytes[skipped..]),
            (true, _) => Cow::Owned(plain[skipped..].to_vec()),
        };
        Ok(Self {
            bytes,
            datatype: made_of,
        })
    }

    /// Checks the value of a deletion that comes from elsewhere: extended attributes, or nothing.
    ///
    /// # Errors
    /// `Invalid` when there is a body; else as [`Self::check_whole`].
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

    /// The value of a tombstone.
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
        let datatype = made_of(&bytes)?;
        Ok(Self { bytes, datatype })
    }

    /// The same body behind the extended attributes of the document that it takes the place of.
    ///
    /// # Errors
    /// `TooBig` when both together are; `XattrInvalid` when `old` is damaged.
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
fn made_of(body: &[u8]) -> Result<Datatype, Status> {
    if body.len() > VALUE_BYTES_MAX {
        return Err(Status::TooBig);
    }
    Ok(match kedge_json::is_json(body) {
        true => Datatype::JSON,
        false => Datatype::RAW,
    })
}

/// Returns the datatype of extended attributes and the body behind them, and the number of bytes at the front that say
/// only that there are no attributes.
fn made_of_both(value: &[u8]) -> Result<(Datatype, usize), Status> {
    let (xattrs, body) = split_xattrs(value)?;
    if xattrs.is_empty() {
        return Ok((made_of(body)?, value.len() - body.len()));
    }
    let mut names = HashSet::new();
    for (name, text) in xattrs.iter() {
        check_xattr_name(name)?;
        if !names.insert(name) || !kedge_json::is_json(text) {
            return Err(Status::XattrInvalid);
        }
    }
    check_xattr_sizes(xattrs.iter(), body.len())?;
    Ok((made_of(body)?.union(Datatype::XATTR), 0))
}

/// A stored value, taken apart into extended attributes and body.
#[derive(Debug)]
pub struct ValueParts<'a> {
    bytes: Cow<'a, [u8]>,
    body: usize,
}

impl<'a> ValueParts<'a> {
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

    /// The value as clients see it, not compressed.
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
    let kept = ValueParts::of(old)?.xattrs().system_section();
    let datatype = if kept.is_empty() {
        Datatype::RAW
    } else {
        Datatype::XATTR
    };
    Ok((datatype, kept))
}

/// Compresses values.
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
mod tests;
