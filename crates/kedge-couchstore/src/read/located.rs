//! Looking documents up without the disk, as far as memory knows where they are, so that somebody else can read their bodies.

use std::ops::Range;

use kedge_disk::RingFile;

use super::bodies::read_body;
use super::{Document, Entry, Form, Snapshot};
use crate::Error;
use crate::file::window::Window;
use crate::format::block::end_of;
use crate::tree::ById;
use crate::tree::search::find_in_memory;

/// A document whose body is still to be read.
#[derive(Debug)]
pub struct Located {
    snapshot: Snapshot,
    entry: Entry,
    file: RingFile,
    /// Where the body is in the file, with the chunk's head and what lies between its parts.
    place: Range<u64>,
}

impl Snapshot {
    /// Where the document of a key has its body. `None` if nodes in memory do not tell, if there is no such document, or
    /// none that has a body, and if others cannot read the file: then [`Snapshot::get_many_documents`] says more.
    #[must_use]
    pub fn locate(&self, key: &[u8]) -> Option<Located> {
        let root = self.header.by_id.as_ref()?;
        let copied = |entry: crate::tree::node::NodeEntry<'_>| Entry::copied_from_id(&entry);
        let entry = find_in_memory::<ById, _>(&self.shared, root, key, copied)?;
        let (body, body_bytes) = (entry.fields().body, entry.fields().body_bytes);
        let place = body..end_of(body, u64::from(body_bytes));
        let is_sound = body > 0 && body_bytes > 0 && place.end <= self.header.offset.0;
        let file = self.shared.file().for_ring().filter(|_| is_sound)?;
        Some(Located {
            snapshot: self.clone(),
            entry,
            file,
            place,
        })
    }
}

impl Located {
    /// The file that the body is in.
    #[must_use]
    pub fn file(&self) -> &RingFile {
        &self.file
    }

    /// The snapshot that it is of.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Which bytes of the file [`Located::document`] wants.
    #[must_use]
    pub fn place(&self) -> Range<u64> {
        self.place.clone()
    }

    /// The document, from the bytes at its place.
    ///
    /// # Errors
    /// Damage.
    pub fn document(self, bytes: Vec<u8>, form: Form) -> Result<Document, Error> {
        let Located {
            snapshot, entry, ..
        } = self;
        let mut window = Window::holding(self.place.start, bytes);
        let end = snapshot.header.offset;
        let body = read_body(&snapshot.shared, &mut window, end, &entry, form)?;
        Ok(Document { entry, body })
    }
}
