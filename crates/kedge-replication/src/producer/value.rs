//! The part of a stored value that a connection wants, in its encoding.
//!
//! Extended attributes precede the body: four bytes with their length, then pairs of a length of four bytes, a key, a
//! zero, a JSON text and a zero. A compressed value is one Snappy block of both.

use super::format::{BodyMode, MessageFormat};
use kedge_types::Datatype;
use kedge_types::limits::INFLATED_BYTES_MAX;
use kedge_vbucket::{Item, MinRatio, ValueCompressor};

/// The largest capacity of a buffer that is kept after use, in bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// The error of a change that cannot be sent: a stored value does not match its datatype, or a change is in an
/// impossible place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsendable;

/// Encodes values for a connection, without an allocation for each.
#[derive(Debug, Default)]
pub(crate) struct ValueEncoder {
    inflated: Vec<u8>,
    parts: Vec<u8>,
    packer: ValueCompressor,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum XattrFilter {
    None,
    System,
    All,
}

impl ValueEncoder {
    /// Returns the value of `item` and its datatype.
    pub(crate) fn shape<'a>(
        &'a mut self,
        format: &MessageFormat,
        item: &'a Item,
    ) -> Result<(Datatype, &'a [u8]), Unsendable> {
        let stored = item.datatype();
        let (mut datatype, mut value) = (stored, item.value());
        let deleted = item.is_deleted();
        let wants_body = format.body == BodyMode::Whole && !deleted;
        let xattrs = match format.xattrs && stored.contains(Datatype::XATTR) {
            false => XattrFilter::None,
            true if deleted && !format.deleted_user_xattrs => XattrFilter::System,
            true => XattrFilter::All,
        };
        let Self {
            inflated,
            parts,
            packer,
        } = self;
        if inflated.capacity() + parts.capacity() > KEPT_BYTES_MAX {
            (*inflated, *parts) = (Vec::new(), Vec::new());
        }
        let is_whole =
            wants_body && (xattrs == XattrFilter::All || !stored.contains(Datatype::XATTR));
        if !wants_body && xattrs == XattrFilter::None {
            value = &[];
            datatype = Datatype::RAW;
        } else if stored.contains(Datatype::SNAPPY) && !(format.snappy && is_whole) {
            inflate(value, inflated)?;
            value = inflated;
            datatype = datatype.without(Datatype::SNAPPY);
        }
        if !value.is_empty() && !is_whole {
            (datatype, value) = select(value, datatype, wants_body, xattrs, parts)?;
        }
        if format.force_compression && !datatype.contains(Datatype::SNAPPY) && !value.is_empty() {
            let any = MinRatio::from_hundredths(100);
            if let Some(packed) = packer.pack(value, any) {
                value = packed;
                datatype = datatype.union(Datatype::SNAPPY);
            }
        }
        if format.body == BodyMode::NoWithDatatype && !deleted {
            let compressed = datatype.intersection(Datatype::SNAPPY);
            datatype = stored.without(Datatype::SNAPPY).union(compressed);
        }
        if !format.json {
            datatype = datatype.without(Datatype::JSON);
        }
        Ok((datatype, value))
    }
}

fn inflate(value: &[u8], out: &mut Vec<u8>) -> Result<(), Unsendable> {
    let len = snap::raw::decompress_len(value).map_err(|_| Unsendable)?;
    if len > INFLATED_BYTES_MAX {
        return Err(Unsendable);
    }
    out.resize(len, 0);
    let inflated = snap::raw::Decoder::new().decompress(value, out);
    inflated.map(|_| ()).map_err(|_| Unsendable)
}

/// Returns the wanted parts of an uncompressed value.
fn select<'a>(
    value: &'a [u8],
    datatype: Datatype,
    wants_body: bool,
    xattrs: XattrFilter,
    parts: &'a mut Vec<u8>,
) -> Result<(Datatype, &'a [u8]), Unsendable> {
    let (section, body) = if datatype.contains(Datatype::XATTR) {
        split(value)?
    } else {
        (&[][..], value)
    };
    if xattrs == XattrFilter::None {
        return Ok(if wants_body {
            (datatype.without(Datatype::XATTR), body)
        } else {
            (Datatype::RAW, &[])
        });
    }
    parts.clear();
    parts.extend_from_slice(&[0; 4]);
    for pair in pairs(section) {
        let pair = pair?;
        // The name of a system attribute begins with an underscore.
        if xattrs == XattrFilter::All || pair.get(4) == Some(&b'_') {
            parts.extend_from_slice(pair);
        }
    }
    let section_len = parts.len() - 4;
    parts[..4].copy_from_slice(&(section_len as u32).to_be_bytes());
    if wants_body {
        parts.extend_from_slice(body);
    } else if section_len == 0 {
        return Ok((Datatype::RAW, &[]));
    }
    let json = if wants_body {
        datatype.intersection(Datatype::JSON)
    } else {
        Datatype::RAW
    };
    Ok((json.union(Datatype::XATTR), parts))
}

/// Splits a value into its pairs of extended attributes and its body.
fn split(value: &[u8]) -> Result<(&[u8], &[u8]), Unsendable> {
    let (len, rest) = value.split_first_chunk().ok_or(Unsendable)?;
    rest.split_at_checked(u32::from_be_bytes(*len) as usize)
        .ok_or(Unsendable)
}

/// Iterates over the pairs, each with its length in front.
fn pairs(mut section: &[u8]) -> impl Iterator<Item = Result<&[u8], Unsendable>> {
    std::iter::from_fn(move || {
        if section.is_empty() {
            return None;
        }
        let pair = split(section).map(|(pair, rest)| {
            let (whole, _) = section.split_at(4 + pair.len());
            section = rest;
            whole
        });
        if pair.is_err() {
            section = &[];
        }
        Some(pair)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_protocol::binary::Features;
    use kedge_protocol::binary::commands::dcp::{DcpOpen, OpenFlags};
    use kedge_vbucket::{Deletion, ItemMeta};

    fn blob(pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut section = Vec::new();
        for (key, value) in pairs {
            let pair = [key.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat();
            section.extend_from_slice(&(pair.len() as u32).to_be_bytes());
            section.extend_from_slice(&pair);
        }
        [&(section.len() as u32).to_be_bytes()[..], &section].concat()
    }

    fn item(datatype: Datatype, deleted: bool, value: &[u8]) -> Item {
        let meta = ItemMeta {
            datatype,
            deleted: deleted.then_some(Deletion::Explicit),
            ..ItemMeta::default()
        };
        Item::new(&meta, b"\0k", &[value])
    }

    fn format(flags: OpenFlags) -> MessageFormat {
        let open = DcpOpen {
            flags,
            name: b"n",
            value: b"",
        };
        MessageFormat {
            json: true,
            ..MessageFormat::new(&open, Features::default())
        }
    }

    #[track_caller]
    fn check(format: &MessageFormat, item: &Item, datatype: Datatype, value: &[u8]) {
        let mut shaper = ValueEncoder::default();
        let (got, bytes) = shaper.shape(format, item).unwrap();
        assert_eq!((got, bytes), (datatype, value), "{item:?}");
    }

    const JSON: Datatype = Datatype::JSON;
    const RAW: Datatype = Datatype::RAW;
    const XATTR: Datatype = Datatype::XATTR;

    #[test]
    fn value_encoder_sends_the_wanted_parts() {
        let both = blob(&[("_sys", "1"), ("user", "2")]);
        let system = blob(&[("_sys", "1")]);
        let body = br#"{"a":1}"#;
        let value = [&both[..], body].concat();
        let plain = item(JSON, false, body);
        let with_xattrs = item(JSON.union(XATTR), false, &value);
        let tombstone = item(XATTR, true, &both);
        let user_only = item(XATTR, true, &blob(&[("user", "2")]));

        let default = format(OpenFlags(0));
        check(&default, &plain, JSON, body);
        check(&default, &with_xattrs, JSON, body);
        check(&default, &tombstone, RAW, b"");

        let xattrs = format(OpenFlags::XATTRS);
        check(&xattrs, &plain, JSON, body);
        check(&xattrs, &with_xattrs, JSON.union(XATTR), &value);
        check(&xattrs, &tombstone, XATTR, &system);
        check(&xattrs, &user_only, RAW, b"");

        let user = OpenFlags::XATTRS.union(OpenFlags::DELETED_USER_XATTRS);
        check(&format(user), &tombstone, XATTR, &both);

        let keys = format(OpenFlags::NO_VALUE);
        check(&keys, &plain, RAW, b"");
        check(&keys, &with_xattrs, RAW, b"");
        let keys_and_xattrs = format(OpenFlags::NO_VALUE.union(OpenFlags::XATTRS));
        check(&keys_and_xattrs, &plain, RAW, b"");
        check(&keys_and_xattrs, &with_xattrs, XATTR, &both);

        let datatypes = format(OpenFlags::NO_VALUE_WITH_DATATYPE);
        check(&datatypes, &plain, JSON, b"");
        check(&datatypes, &with_xattrs, JSON.union(XATTR), b"");

        let not_json = MessageFormat {
            json: false,
            ..default
        };
        check(&not_json, &plain, RAW, body);
    }

    #[test]
    fn value_is_inflated_for_a_consumer_without_snappy() {
        let body = [b'x'; 500];
        let mut packer = ValueCompressor::default();
        let packed = packer.pack(&body, MinRatio::DEFAULT).unwrap().to_vec();
        let stored = item(Datatype::SNAPPY, false, &packed);
        let plain = format(OpenFlags(0));
        check(&plain, &stored, RAW, &body);
        let snappy = MessageFormat {
            snappy: true,
            ..plain
        };
        check(&snappy, &stored, Datatype::SNAPPY, &packed);
        check(&snappy, &item(RAW, false, &body), RAW, &body);
        let forced = MessageFormat {
            force_compression: true,
            ..snappy
        };
        check(&forced, &item(RAW, false, &body), Datatype::SNAPPY, &packed);
        check(&forced, &item(RAW, false, b"xyz"), RAW, b"xyz");
        check(&forced, &stored, Datatype::SNAPPY, &packed);
        let keys = MessageFormat {
            body: BodyMode::NoWithDatatype,
            ..snappy
        };
        check(&keys, &stored, RAW, b"");

        // Attributes and body are one block.
        let section = blob(&[("user", "1")]);
        let value = [&section[..], &body].concat();
        let packed = packer.pack(&value, MinRatio::DEFAULT).unwrap().to_vec();
        let stored = item(Datatype::SNAPPY.union(XATTR), false, &packed);
        check(&snappy, &stored, RAW, &body);
        let wants_all = MessageFormat {
            xattrs: true,
            ..snappy
        };
        check(&wants_all, &stored, Datatype::SNAPPY.union(XATTR), &packed);
        let inflates = MessageFormat {
            snappy: false,
            ..wants_all
        };
        check(&inflates, &stored, XATTR, &value);
    }

    #[test]
    fn malformed_value_is_detected() {
        let plain = format(OpenFlags(0));
        let claims_a_gigabyte = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00];
        for (datatype, value) in [
            (Datatype::SNAPPY, &b"\xff\xff\xff"[..]),
            (Datatype::SNAPPY, &claims_a_gigabyte),
            (XATTR, b"\0\0"),
            (XATTR, b"\0\0\0\x05a"),
        ] {
            let mut shaper = ValueEncoder::default();
            let stored = item(datatype, false, value);
            assert_eq!(shaper.shape(&plain, &stored), Err(Unsendable), "{value:?}");
        }
        let broken_pair = b"\0\0\0\x05\0\0\0\x09a";
        let stored = item(XATTR, true, broken_pair);
        let xattrs = format(OpenFlags::XATTRS);
        assert_eq!(
            ValueEncoder::default().shape(&xattrs, &stored),
            Err(Unsendable)
        );
    }
}
