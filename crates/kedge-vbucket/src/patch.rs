//! Patches of a document's own CAS and seqno in its extended attributes.
//!
//! Source: Couchbase `docs/mutate-with-meta.md`, section "Patching CAS and Sequence Numbers". The text is that of the
//! sub-document macros without quotes: `0x` and sixteen digits, with the bytes of the CAS in reverse order.

use kedge_types::{Cas, Seqno, Status, split_xattrs};

/// The length of a number as text, in bytes.
const TEXT_BYTES: usize = 18;
/// The size of the length field in front of all attributes and of each attribute, in bytes.
const LEN_BYTES: usize = 4;

/// The places in a value where its CAS and seqno are written. An offset counts bytes from the start of the value, where
/// the length of the extended attributes is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// The offsets of the CAS.
    pub cas: Vec<u32>,
    /// The offsets of the seqno.
    pub seqno: Vec<u32>,
}

impl Patches {
    /// Returns whether there are no patches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cas.is_empty() && self.seqno.is_empty()
    }

    /// Checks that the patches fit into `value`, which starts with extended attributes and is not compressed.
    ///
    /// # Errors
    /// `Invalid` if a patch is not within the value of one attribute, if two patches overlap, or if a patched attribute
    /// is not JSON; `XattrInvalid` if there are no attributes.
    pub fn check(&self, value: &[u8]) -> Result<(), Status> {
        let (xattrs, _) = split_xattrs(value)?;
        // The start and end of each attribute value, in order.
        let mut texts = Vec::new();
        let mut at = LEN_BYTES;
        for (name, text) in xattrs.iter() {
            let start = at + LEN_BYTES + name.len() + 1;
            at = start + text.len() + 1;
            texts.push((start, at - 1));
        }
        let mut starts: Vec<usize> = self.offsets().collect();
        starts.sort_unstable();
        if starts.windows(2).any(|two| two[0] + TEXT_BYTES > two[1]) {
            return Err(Status::Invalid);
        }
        for start in starts {
            let behind = texts.partition_point(|(begins, _)| *begins <= start);
            let within = behind.checked_sub(1).map(|last| texts[last]);
            if within.is_none_or(|(_, end)| start + TEXT_BYTES > end) {
                return Err(Status::Invalid);
            }
        }
        // All digits are equivalent for JSON, so a check with one number is sufficient.
        let mut patched = value.to_vec();
        self.apply(&mut patched, Cas(0), Seqno(0));
        let (xattrs, _) = split_xattrs(&patched)?;
        match xattrs.iter().all(|(_, text)| kedge_json::is_json(text)) {
            true => Ok(()),
            false => Err(Status::Invalid),
        }
    }

    fn offsets(&self) -> impl Iterator<Item = usize> {
        let all = self.cas.iter().chain(&self.seqno);
        all.map(|offset| *offset as usize)
    }

    /// Writes the numbers into a checked value.
    pub(crate) fn apply(&self, value: &mut [u8], cas: Cas, seqno: Seqno) {
        let mut write = |offsets: &[u32], number: u64| {
            let text = format!("{number:#018x}");
            for offset in offsets {
                let start = *offset as usize;
                value[start..start + TEXT_BYTES].copy_from_slice(text.as_bytes());
            }
        };
        write(&self.cas, cas.get().swap_bytes());
        write(&self.seqno, seqno.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_types::XattrsBuf;

    const ZERO: &str = "0x0000000000000000";

    /// Returns a value with two attributes and a body, each with a string that has room for a number.
    fn value() -> Vec<u8> {
        let mut xattrs = XattrsBuf::default();
        xattrs.set(b"_s", format!(r#"{{"cas":"{ZERO}"}}"#).as_bytes());
        xattrs.set(
            b"user",
            format!(r#"["{ZERO}",12345678901234567890]"#).as_bytes(),
        );
        [xattrs.section(), format!("\"{ZERO}\"").into_bytes()].concat()
    }

    /// Returns the offset of the `n`th occurrence of `text`.
    fn at(text: &str, n: usize) -> u32 {
        let value = value();
        let windows = value.windows(text.len()).enumerate();
        let mut found = windows.filter(|(_, window)| *window == text.as_bytes());
        found.nth(n).expect("it is there").0 as u32
    }

    #[test]
    fn patches_write_the_text_of_subdocument_macros() {
        let patches = Patches {
            cas: vec![at(ZERO, 0)],
            seqno: vec![at(ZERO, 1)],
        };
        let mut value = value();
        assert_eq!(patches.check(&value), Ok(()));
        patches.apply(&mut value, Cas(0x0102_0304_0506_0708), Seqno(0xfe));
        let (xattrs, body) = split_xattrs(&value).unwrap();
        let cas = br#"{"cas":"0x0807060504030201"}"#;
        assert_eq!(xattrs.get(b"_s"), Some(&cas[..]));
        let seqno = br#"["0x00000000000000fe",12345678901234567890]"#;
        assert_eq!(xattrs.get(b"user"), Some(&seqno[..]));
        assert_eq!(body, format!("\"{ZERO}\"").as_bytes());
    }

    #[test]
    fn patches_that_would_damage_the_value_are_refused() {
        let value = value();
        let body = at(ZERO, 2);
        for (offset, why) in [
            (0, "the length of all"),
            (at("_s", 0), "a name"),
            (at("{", 0), "the string's quote"),
            (at(ZERO, 0) + 1, "the closing quote"),
            (at("}", 0), "two attributes"),
            (at("user", 0), "another name"),
            (at("1234", 0), "a number"),
            (body, "the body"),
            (body + 1, "the end"),
            (u32::MAX, "nowhere"),
            (at(ZERO, 0) - 1, "the opening quote"),
        ] {
            for both in [vec![offset], vec![at(ZERO, 0), offset]] {
                let cas = Patches {
                    cas: both.clone(),
                    seqno: vec![],
                };
                let seqno = Patches {
                    cas: vec![],
                    seqno: both,
                };
                for patches in [cas, seqno] {
                    assert_eq!(patches.check(&value), Err(Status::Invalid), "{why}");
                }
            }
        }
        let twice = Patches {
            cas: vec![at(ZERO, 0)],
            seqno: vec![at(ZERO, 0)],
        };
        assert_eq!(twice.check(&value), Err(Status::Invalid), "both at once");
        let one = Patches {
            cas: vec![0],
            seqno: vec![],
        };
        assert_eq!(one.check(b"{}"), Err(Status::XattrInvalid));
        assert_eq!(Patches::default().check(&value), Ok(()));
    }
}
