//! Extended attributes, which precede the body if the datatype has [`Datatype::XATTR`].
//!
//! ```text
//! u32 bytes of all pairs | repeated: u32 bytes of the pair, name, 0, value, 0 | body
//! ```
//!
//! Source: Couchbase `docs/Document.md` and `docs/ExtendedAttributes.md`. A name that begins with `_` belongs to a
//! system attribute, which the tombstone keeps after a deletion. All others are user attributes, which are deleted with
//! the body.
//!
//! [`Datatype::XATTR`]: crate::Datatype::XATTR

use crate::Status;
use crate::limits::{SYSTEM_XATTR_BYTES_MAX, VALUE_BYTES_MAX, XATTR_NAME_BYTES_MAX};

/// Size in bytes of a length field.
const LEN: usize = 4;

/// The validated attributes of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Xattrs<'a> {
    pairs: &'a [u8],
}

/// Splits an uncompressed value into its attributes and its body.
///
/// # Errors
/// [`Status::XattrInvalid`] when the section is longer than the value, or does not consist of pairs of a name and a
/// value.
pub fn split_xattrs(value: &[u8]) -> Result<(Xattrs<'_>, &[u8]), Status> {
    let (pairs, body) = take_counted(value)?;
    let mut rest = pairs;
    while !rest.is_empty() {
        rest = take_pair(rest)?.1;
    }
    Ok((Xattrs { pairs }, body))
}

/// Returns `true` if the name belongs to a system attribute, which a tombstone keeps.
#[must_use]
pub fn is_system_xattr(name: &[u8]) -> bool {
    name.first() == Some(&b'_')
}

/// Validates the name of an attribute that is to be stored.
///
/// # Errors
/// [`Status::XattrInvalid`] when the name is empty or longer than [`XATTR_NAME_BYTES_MAX`], is not UTF-8, starts with
/// punctuation other than `_`, is a lone `_`, or contains control characters.
pub fn check_xattr_name(name: &[u8]) -> Result<(), Status> {
    let good_start = match name {
        [] | [b'_'] => false,
        [first, ..] => *first == b'_' || !first.is_ascii_punctuation(),
    };
    let good = good_start
        && name.len() <= XATTR_NAME_BYTES_MAX
        && !name.iter().any(u8::is_ascii_control)
        && std::str::from_utf8(name).is_ok();
    if good {
        Ok(())
    } else {
        Err(Status::XattrInvalid)
    }
}

impl<'a> Xattrs<'a> {
    /// Iterates over names and values, in stored order.
    pub fn iter(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.pairs;
        std::iter::from_fn(move || {
            let (pair, left) = take_pair(rest).ok()?;
            rest = left;
            Some(pair)
        })
    }

    /// Returns the value of an attribute.
    #[must_use]
    pub fn get(self, name: &[u8]) -> Option<&'a [u8]> {
        self.iter()
            .find(|(there, _)| *there == name)
            .map(|(_, value)| value)
    }

    /// Returns `true` if there are no attributes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.pairs.is_empty()
    }

    /// Encodes the system attributes, which a tombstone keeps. The result is empty when there are none.
    #[must_use]
    pub fn system_section(self) -> Vec<u8> {
        let mut kept = XattrsBuf::default();
        let system = self.iter().filter(|(name, _)| is_system_xattr(name));
        for (name, value) in system {
            kept.set(name, value);
        }
        kept.section()
    }
}

/// A name and a value.
type OwnedPair = (Box<[u8]>, Box<[u8]>);

/// A mutable set of attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XattrsBuf {
    pairs: Vec<OwnedPair>,
}

impl From<Xattrs<'_>> for XattrsBuf {
    fn from(xattrs: Xattrs<'_>) -> Self {
        let pairs = xattrs
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        Self {
            pairs: pairs.collect(),
        }
    }
}

impl XattrsBuf {
    /// Iterates over names and values, in stored order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the value of an attribute.
    #[must_use]
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter()
            .find(|(there, _)| *there == name)
            .map(|(_, value)| value)
    }

    /// Sets the value of an attribute. A new attribute becomes the last one. Neither name nor value may contain a zero
    /// byte.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.pairs.iter_mut().find(|(there, _)| **there == *name) {
            Some((_, there)) => *there = value.into(),
            None => self.pairs.push((name.into(), value.into())),
        }
    }

    /// Removes an attribute.
    pub fn remove(&mut self, name: &[u8]) {
        self.pairs.retain(|(there, _)| **there != *name);
    }

    /// Removes the user attributes, which are deleted with the body.
    pub fn remove_user(&mut self) {
        self.pairs.retain(|(name, _)| is_system_xattr(name));
    }

    /// Returns `true` if there are no attributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Encodes the section that precedes a body. The result is empty when there are no attributes.
    ///
    /// # Panics
    /// Panics if the section reaches 4 GiB, which no command can bring about.
    #[must_use]
    pub fn section(&self) -> Vec<u8> {
        if self.pairs.is_empty() {
            return Vec::new();
        }
        let len = |bytes: usize| {
            u32::try_from(bytes)
                .expect("attributes have less than 4 GiB")
                .to_be_bytes()
        };
        let total: usize = self
            .iter()
            .map(|(name, value)| LEN + pair_len(name, value))
            .sum();
        let mut section = Vec::with_capacity(LEN + total);
        section.extend_from_slice(&len(total));
        for (name, value) in self.iter() {
            section.extend_from_slice(&len(pair_len(name, value)));
            section.extend_from_slice(name);
            section.push(0);
            section.extend_from_slice(value);
            section.push(0);
        }
        section
    }
}

/// Checks the sizes of a document: user attributes share the limit of the body, and system attributes have their own.
///
/// # Errors
/// [`Status::TooBig`] when either limit is exceeded.
pub fn check_xattr_sizes<'a>(
    xattrs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    body_bytes: usize,
) -> Result<(), Status> {
    let (mut system, mut user) = (0, body_bytes);
    for (name, value) in xattrs {
        let bytes = LEN + pair_len(name, value);
        *(if is_system_xattr(name) {
            &mut system
        } else {
            &mut user
        }) += bytes;
    }
    if system > SYSTEM_XATTR_BYTES_MAX || user > VALUE_BYTES_MAX {
        return Err(Status::TooBig);
    }
    Ok(())
}

fn pair_len(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + 2
}

/// Reads a length field and that many bytes. Returns them and the remaining bytes.
fn take_counted(bytes: &[u8]) -> Result<(&[u8], &[u8]), Status> {
    let (len, rest) = bytes
        .split_first_chunk::<LEN>()
        .ok_or(Status::XattrInvalid)?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
        .ok_or(Status::XattrInvalid)
}

/// A name with its value, and the remaining bytes.
type ParsedPair<'a> = ((&'a [u8], &'a [u8]), &'a [u8]);

fn take_pair(bytes: &[u8]) -> Result<ParsedPair<'_>, Status> {
    let (pair, rest) = take_counted(bytes)?;
    let mut parts = pair.splitn(3, |byte| *byte == 0);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(value), Some([])) if !name.is_empty() => Ok(((name, value), rest)),
        _ => Err(Status::XattrInvalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attributes(pairs: &[(&[u8], &[u8])]) -> XattrsBuf {
        let mut all = XattrsBuf::default();
        pairs.iter().for_each(|(name, value)| all.set(name, value));
        all
    }

    #[test]
    fn section_has_the_documented_encoding() {
        let all = attributes(&[(b"_sync", br#"{"cas":"deadbeefcafefeed"}"#), (b"m", b"1")]);
        let expected = [
            b"\0\0\0\x2d\0\0\0\x21_sync\0".as_slice(),
            br#"{"cas":"deadbeefcafefeed"}"#,
            b"\0\0\0\0\x04m\x001\0",
        ];
        assert_eq!(all.section(), expected.concat());
        assert_eq!(XattrsBuf::default().section(), b"");
        let value = [all.section(), b"body".to_vec()].concat();
        let (xattrs, body) = split_xattrs(&value).unwrap();
        assert_eq!(body, b"body");
        assert_eq!(
            (xattrs.get(b"m"), xattrs.get(b"x")),
            (Some(&b"1"[..]), None)
        );
        assert_eq!(XattrsBuf::from(xattrs), all);
        let kept = attributes(&[(b"_sync", br#"{"cas":"deadbeefcafefeed"}"#)]);
        assert_eq!(xattrs.system_section(), kept.section());
        let mut rest = all;
        rest.remove_user();
        assert_eq!(rest, kept);
        rest.remove(b"_sync");
        assert!(rest.is_empty());
    }

    #[test]
    fn malformed_sections_are_rejected() {
        for bytes in [
            &b""[..],
            b"\0\0\0",
            b"\0\0\0\x01",
            b"\0\0\0\x04\0\0\0\0",
            b"\0\0\0\x07\0\0\0\x03\0v\0",
            b"\0\0\0\x07\0\0\0\x03kv\0",
            b"\0\0\0\x08\0\0\0\x04k\0vv",
            b"\0\0\0\x09\0\0\0\x05k\0v\0\0",
            b"\0\0\0\x08\0\0\0\x05k\0v\0",
            b"\xff\xff\xff\xff",
        ] {
            assert_eq!(split_xattrs(bytes), Err(Status::XattrInvalid), "{bytes:?}");
        }
        assert!(split_xattrs(b"\0\0\0\0").unwrap().0.is_empty());
    }

    #[test]
    fn invalid_xattr_names_are_rejected() {
        for good in [
            &b"_s"[..],
            b"user",
            b"a-b",
            "\u{e4}".as_bytes(),
            &[b'x'; 15],
        ] {
            assert_eq!(check_xattr_name(good), Ok(()), "{good:?}");
        }
        for bad in [
            &b""[..],
            b"_",
            b"$document",
            b".a",
            b"a\nb",
            b"\xff",
            &[b'x'; 16],
        ] {
            assert_eq!(check_xattr_name(bad), Err(Status::XattrInvalid), "{bad:?}");
        }
    }

    #[test]
    fn system_attributes_have_their_own_size_limit() {
        let large = |bytes: usize| vec![b'1'; bytes];
        let check = |name: &[u8], value: usize, body: usize| {
            check_xattr_sizes([(name, &large(value)[..])].into_iter(), body)
        };
        let beside = LEN + 2 + 2;
        assert_eq!(
            check(b"_s", SYSTEM_XATTR_BYTES_MAX - beside, VALUE_BYTES_MAX),
            Ok(())
        );
        assert_eq!(
            check(b"_s", SYSTEM_XATTR_BYTES_MAX - beside + 1, 0),
            Err(Status::TooBig)
        );
        assert_eq!(check(b"us", 1, VALUE_BYTES_MAX - beside - 1), Ok(()));
        assert_eq!(
            check(b"us", 1, VALUE_BYTES_MAX - beside),
            Err(Status::TooBig)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_and_what_is_read_comes_back(
            pairs in proptest::collection::vec(("[a-z_]{1,15}", "[ -~]{0,20}"), 0..6),
            noise in proptest::collection::vec((0usize..200, any::<u8>()), 0..3),
            body in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut all = XattrsBuf::default();
            pairs.iter().for_each(|(name, value)| all.set(name.as_bytes(), value.as_bytes()));
            prop_assume!(!all.is_empty());
            let mut value = [all.section(), body.clone()].concat();
            let (xattrs, rest) = split_xattrs(&value).unwrap();
            prop_assert_eq!(XattrsBuf::from(xattrs), all);
            prop_assert_eq!(rest, &body[..]);
            for (at, byte) in noise {
                let len = value.len();
                value[at % len] = byte;
            }
            if let Ok((xattrs, rest)) = split_xattrs(&value) {
                prop_assert_eq!(LEN + xattrs.pairs.len() + rest.len(), value.len());
                let read: usize = xattrs.iter().map(|(name, value)| LEN + pair_len(name, value)).sum();
                prop_assert_eq!(read, xattrs.pairs.len());
            }
        }
    }
}
