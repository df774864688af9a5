//! Lookups without disk access, as far as the cache has the nodes, so that the caller can read bodies asynchronously.

use std::ops::Range;

use kedge_disk::RingFile;

use super::bodies::read_body;
use super::{BodyForm, Document, Entry, Snapshot};
use crate::Error;
use crate::file::window::ReadWindow;
use crate::format::block::end_of;
use crate::tree::ById;
use crate::tree::search::find_in_memory;

/// A document whose body is still to be read.
#[derive(Debug)]
pub struct LocatedBody {
    snapshot: Snapshot,
    entry: Entry,
    file: RingFile,
    /// The range of the body in the file, with the chunk's head and the type bytes between its parts.
    place: Range<u64>,
}

impl Snapshot {
    /// Returns the location of the body of a key's document. Returns `None` if the cache lacks the nodes, if there is
    /// no such document or it has no body, and if the file does not support asynchronous reads:
    /// [`Snapshot::get_many_documents`] gives the full answer.
    #[must_use]
    pub fn locate(&self, key: &[u8]) -> Option<LocatedBody> {
        let root = self.header.by_id.as_ref()?;
        let copied = |entry: crate::tree::node::NodeEntry<'_>| Entry::copied_from_id(&entry);
        let entry = find_in_memory::<ById, _>(&self.shared, root, key, copied)?;
        let (body, body_bytes) = (entry.fields().body, entry.fields().body_bytes);
        let place = body..end_of(body, u64::from(body_bytes));
        let is_sound = body > 0 && body_bytes > 0 && place.end <= self.header.offset.0;
        let file = self.shared.file().for_ring().filter(|_| is_sound)?;
        Some(LocatedBody {
            snapshot: self.clone(),
            entry,
            file,
            place,
        })
    }
}

impl LocatedBody {
    /// Returns the file with the body.
    #[must_use]
    pub fn file(&self) -> &RingFile {
        &self.file
    }

    /// Returns the snapshot of the document.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the byte range of the file that [`LocatedBody::document`] needs.
    #[must_use]
    pub fn place(&self) -> Range<u64> {
        self.place.clone()
    }

    /// Returns the document, from the bytes of its range.
    ///
    /// # Errors
    /// Damage of the file.
    pub fn document(self, bytes: Vec<u8>, form: BodyForm) -> Result<Document, Error> {
        let LocatedBody {
            snapshot, entry, ..
        } = self;
        let mut window = ReadWindow::holding(self.place.start, bytes);
        let end = snapshot.header.offset;
        let body = read_body(&snapshot.shared, &mut window, end, &entry, form)?;
        Ok(Document { entry, body })
    }
}
