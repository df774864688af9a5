//! Bodies of documents, stored or decompressed.

use crate::compress::inflate;
use crate::file::shared::OpenFile;
use crate::file::window::{ChunkSize, ReadWindow};
use crate::limits::{BODY_BYTES_MAX, INFLATED_BODY_BYTES_MAX};
use crate::{DamageKind, Entry, Error, Offset, Snapshot};

/// A document with its body.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The entry.
    pub entry: Entry,
    /// The body, if there is one.
    pub body: Option<Vec<u8>>,
}

/// The form of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyForm {
    /// Decompressed if the store compressed it.
    Plain,
    /// As stored in its chunk, so that another file can store it without work.
    Stored,
}

impl Snapshot {
    /// Reads the body of an entry of this file; `None` if it has none.
    ///
    /// # Errors
    /// Damage of the file, and disk errors.
    pub fn body(&self, entry: &Entry, form: BodyForm) -> Result<Option<Vec<u8>>, Error> {
        let mut window = ReadWindow::exact();
        read_body(&self.shared, &mut window, self.header.offset, entry, form)
    }

    /// Reads the stored body of an entry of this file through `window`; `None` if it has none.
    pub(crate) fn stored_body<'w>(
        &self,
        window: &'w mut ReadWindow,
        entry: &Entry,
    ) -> Result<Option<&'w [u8]>, Error> {
        stored(&self.shared, window, self.header.offset, entry)
    }
}

fn stored<'w>(
    shared: &OpenFile,
    window: &'w mut ReadWindow,
    end: Offset,
    entry: &Entry,
) -> Result<Option<&'w [u8]>, Error> {
    let fields = entry.fields();
    if fields.body == 0 && fields.body_bytes == 0 {
        return Ok(None);
    }
    if fields.body == 0 || fields.body >= end.0 {
        return Err(shared.corrupt(end, DamageKind::BodyPointer(fields.body)));
    }
    let expect = ChunkSize::Exactly(fields.body_bytes);
    let at = Offset(fields.body);
    let body = window.chunk(shared, at, expect, BODY_BYTES_MAX as u32, end)?;
    Ok(Some(body))
}

/// Reads the body of an entry through `window`.
pub(super) fn read_body(
    shared: &OpenFile,
    window: &mut ReadWindow,
    end: Offset,
    entry: &Entry,
    form: BodyForm,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(stored) = stored(shared, window, end, entry)? else {
        return Ok(None);
    };
    let plain = form == BodyForm::Plain && entry.content_meta().is_compressed();
    if !plain || stored.is_empty() {
        return Ok(Some(stored.to_vec()));
    }
    let body = inflate(stored, INFLATED_BODY_BYTES_MAX);
    let at = Offset(entry.fields().body);
    Ok(Some(body.map_err(|problem| shared.corrupt(at, problem))?))
}
