//! The statistics of one collection, in a local document of their own. Couchstore file format, section 3.4.

use super::{KvError, leb128};
use kedge_types::{CollectionId, Seqno};

/// The statistics of a collection in a vBucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectionStats {
    /// Number of live committed documents, without system events.
    pub items: u64,
    /// The highest seqno of the collection.
    pub high_seqno: Seqno,
    /// Size of the bodies on disk, keys and metadata of all its entries, tombstones and prepares included. Old files
    /// lack it.
    pub disk_bytes: Option<u64>,
}

impl CollectionStats {
    /// Decodes the local document.
    ///
    /// # Errors
    /// [`KvError`] if it is not two or three LEB128 numbers.
    pub fn decode(bytes: &[u8]) -> Result<Self, KvError> {
        let (items, rest) = take(bytes, "an item count as canonical LEB128")?;
        let (high_seqno, rest) = take(rest, "a high seqno as canonical LEB128")?;
        let disk_bytes = match rest {
            [] => None,
            _ => {
                let (number, rest) = take(rest, "a disk size as canonical LEB128")?;
                if !rest.is_empty() {
                    return Err(KvError::Stats {
                        expected: "nothing after three numbers",
                    });
                }
                Some(number)
            }
        };
        Ok(Self {
            items,
            high_seqno: Seqno(high_seqno),
            disk_bytes,
        })
    }

    /// Encodes the local document.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16);
        leb128::push(self.items, &mut out);
        leb128::push(self.high_seqno.get(), &mut out);
        if let Some(number) = self.disk_bytes {
            leb128::push(number, &mut out);
        }
        out
    }

    /// Returns the name of the local document: `|0x9|` for collection 9.
    #[must_use]
    pub fn name(collection: CollectionId) -> String {
        format!("|{:#x}|", collection.get())
    }

    /// Returns the collection of a local document's name; `None` if it is not the name of statistics. Only names in the
    /// form of [`CollectionStats::name`] are valid, so that no collection has two.
    #[must_use]
    pub fn collection_of(name: &[u8]) -> Option<CollectionId> {
        let digits = name.strip_prefix(b"|0x")?.strip_suffix(b"|")?;
        let digits = str::from_utf8(digits).ok()?;
        let collection = CollectionId(u32::from_str_radix(digits, 16).ok()?);
        (Self::name(collection).as_bytes() == name).then_some(collection)
    }
}

fn take<'a>(bytes: &'a [u8], expected: &'static str) -> Result<(u64, &'a [u8]), KvError> {
    leb128::take(bytes).ok_or(KvError::Stats { expected })
}
