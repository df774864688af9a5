//! The selection of documents: bounds, a collection, keys of the command line.

use std::ops::Bound;

use clap::Args;
use kedge_couchstore::Entry;
use kedge_couchstore::kv::DiskKey;
use kedge_types::{CollectionId, Seqno};

use super::super::{FileError, text};

#[derive(Args, Clone, Debug, Default)]
pub(super) struct SelectArgs {
    /// First seqno, or with --by-id the first key
    #[arg(long, value_name = "SEQNO|KEY", conflicts_with_all = OTHERS)]
    start: Option<String>,
    /// Last seqno, or with --by-id the last key
    #[arg(long, value_name = "SEQNO|KEY", conflicts_with_all = OTHERS)]
    end: Option<String>,
    /// Only documents of this collection. Keys on the command line are in it, otherwise in the default collection
    #[arg(long, value_name = "ID", value_parser = collection)]
    collection: Option<CollectionId>,
    /// Keys on the command line are hex digits of the whole key as stored in the file
    #[arg(long, conflicts_with = "collection")]
    hex: bool,
}

/// Outputs without bounds.
const OTHERS: [&str; 4] = ["local", "headers", "tree", "key"];

fn collection(text: &str) -> Result<CollectionId, String> {
    let number = text::number(text)?;
    match u32::try_from(number) {
        Ok(id) if !(1..=7).contains(&id) => Ok(CollectionId(id)),
        _ => Err("collections have ids of 32 bits, and none of 1 to 7".to_owned()),
    }
}

/// The parsed flags.
#[derive(Debug)]
pub(super) struct Selection {
    args: SelectArgs,
    seqnos: (Bound<Seqno>, Bound<Seqno>),
    keys: KeyBounds,
}

type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl Selection {
    pub(super) fn new(args: &SelectArgs, by_id: bool) -> Result<Self, FileError> {
        let mut selection = Self {
            args: args.clone(),
            seqnos: (Bound::Unbounded, Bound::Unbounded),
            keys: (Bound::Unbounded, Bound::Unbounded),
        };
        if by_id {
            selection.keys = selection.key_bounds()?;
        } else {
            let bound = |text: &Option<String>| match text {
                None => Ok(Bound::Unbounded),
                Some(text) => match text::number(text) {
                    Ok(number) => Ok(Bound::Included(Seqno(number))),
                    Err(error) => Err(FileError::Usage(format!("seqno {text:?}: {error}"))),
                },
            };
            selection.seqnos = (bound(&args.start)?, bound(&args.end)?);
        }
        Ok(selection)
    }

    /// Returns the bounds. A missing bound is the start or end of the collection of the other one.
    fn key_bounds(&self) -> Result<KeyBounds, FileError> {
        let (start, end) = (&self.args.start, &self.args.end);
        let given = |key: &String| self.committed(key).map(Bound::Included);
        let open_ended = self.args.hex || (start.is_none() && end.is_none());
        let first = match start {
            Some(key) => given(key)?,
            None if open_ended => Bound::Unbounded,
            None => Bound::Included(self.document(false, b"")),
        };
        let last = match end {
            Some(key) => given(key)?,
            None if open_ended => Bound::Unbounded,
            None => {
                // The last byte of an id's prefix is below 0x80, so nothing carries over.
                let mut behind = self.document(false, b"");
                if let Some(last) = behind.last_mut() {
                    *last += 1;
                }
                Bound::Excluded(behind)
            }
        };
        Ok((first, last))
    }

    pub(super) fn seqnos(&self) -> (Bound<Seqno>, Bound<Seqno>) {
        self.seqnos
    }

    pub(super) fn keys(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let (start, end) = &self.keys;
        (
            start.as_ref().map(|key| &**key),
            end.as_ref().map(|key| &**key),
        )
    }

    /// Returns whether a document is in the selected collection.
    pub(super) fn takes(&self, entry: &Entry) -> bool {
        let Some(wanted) = self.args.collection else {
            return true;
        };
        matches!(
            DiskKey::decode(entry.key()),
            Ok(DiskKey::Document { collection, .. }) if collection == wanted
        )
    }

    /// Returns the forms of a key in the file: committed, and as a prepare.
    pub(super) fn forms_of(&self, key: &str) -> Result<Vec<Vec<u8>>, FileError> {
        let committed = self.committed(key)?;
        if self.args.hex {
            return Ok(vec![committed]);
        }
        Ok(vec![committed, self.document(true, key.as_bytes())])
    }

    fn committed(&self, key: &str) -> Result<Vec<u8>, FileError> {
        if !self.args.hex {
            return Ok(self.document(false, key.as_bytes()));
        }
        text::from_hex(key)
            .ok_or_else(|| FileError::Usage(format!("key {key:?}: expected pairs of hex digits")))
    }

    fn document(&self, prepared: bool, logical: &[u8]) -> Vec<u8> {
        let collection = self.args.collection.unwrap_or(CollectionId::DEFAULT);
        let key = DiskKey::Document {
            prepared,
            collection,
            logical,
        };
        key.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(start: Option<&str>, end: Option<&str>, id: u32, hex: bool) -> Selection {
        let args = SelectArgs {
            start: start.map(str::to_owned),
            end: end.map(str::to_owned),
            collection: (id != 0).then_some(CollectionId(id)),
            hex,
        };
        Selection::new(&args, true).expect("bounds")
    }

    #[test]
    fn dump_bounds_are_converted_to_file_keys() {
        use Bound::{Excluded, Included, Unbounded};
        let table = [
            (keys(None, None, 0, false), (Unbounded, Unbounded)),
            (keys(None, None, 9, false), (Unbounded, Unbounded)),
            (
                keys(Some("a"), None, 0, false),
                (Included(&b"\0a"[..]), Excluded(&b"\x01"[..])),
            ),
            (
                keys(None, Some("z"), 0x1234, false),
                (Included(&b"\xb4\x24"[..]), Included(&b"\xb4\x24z"[..])),
            ),
            (
                keys(Some("a"), None, 0x1234, false),
                (Included(&b"\xb4\x24a"[..]), Excluded(&b"\xb4\x25"[..])),
            ),
            (
                keys(Some("0200"), None, 0, true),
                (Included(&b"\x02\0"[..]), Unbounded),
            ),
        ];
        for (selection, expected) in table {
            assert_eq!(selection.keys(), expected, "{selection:?}");
        }
        let seqnos = SelectArgs {
            start: Some("0x10".to_owned()),
            ..SelectArgs::default()
        };
        let seqnos = Selection::new(&seqnos, false).expect("bounds");
        assert_eq!(seqnos.seqnos(), (Included(Seqno(16)), Unbounded));
        let bad = SelectArgs {
            end: Some("a".to_owned()),
            ..SelectArgs::default()
        };
        assert!(Selection::new(&bad, false).is_err());
        assert!(collection("8").is_ok() && collection("1").is_err());
        assert!(collection("0x100000000").is_err());
    }

    #[test]
    fn dump_key_selects_the_document_and_its_prepare() {
        let selection = keys(None, None, 9, false);
        let forms = selection.forms_of("k").expect("forms");
        assert_eq!(forms, [&b"\x09k"[..], b"\x02\x09k"]);
        let raw = keys(None, None, 0, true);
        assert_eq!(raw.forms_of("ff00").expect("forms"), [b"\xff\0"]);
        assert!(raw.forms_of("f").is_err());
    }
}
