//! Reads of the value that a path names.

use crate::SubdocError;
use crate::from_end::narrow;
use crate::path::Path;
use crate::walk::DocumentWalk;

/// Returns the text of the value that `path` names in `document`, which must be JSON. It reads the document up to the
/// end of that value. Leading `[-1]` components are resolved from the end of the document.
///
/// # Errors
/// `PathEinval` for the empty path, `PathEnoent`, `PathMismatch`, `DocE2deep`, `DocNotjson`.
pub fn get<'d>(document: &'d [u8], path: &Path<'_>) -> Result<&'d [u8], SubdocError> {
    if path.is_empty() {
        return Err(SubdocError::PathEinval);
    }
    let narrowed = narrow(document, path.components())?;
    let mut walk = DocumentWalk::within(narrowed.text, narrowed.open);
    let entry = walk.find(narrowed.path)?;
    walk.skip_value()?;
    Ok(walk.since(entry.value))
}

/// Returns `Ok` if `path` names a value in `document`, which must be JSON.
///
/// # Errors
/// The errors of [`get`].
pub fn exists(document: &[u8], path: &Path<'_>) -> Result<(), SubdocError> {
    get(document, path).map(|_| ())
}

/// Returns the number of elements of the array, or of members of the object, that `path` names in `document`, which
/// must be JSON. The path may be empty.
///
/// # Errors
/// `PathEnoent`, `PathMismatch` (also if the value is no container), `DocE2deep`, `DocNotjson`.
pub fn count(document: &[u8], path: &Path<'_>) -> Result<u64, SubdocError> {
    let narrowed = narrow(document, path.components())?;
    let mut walk = DocumentWalk::within(narrowed.text, narrowed.open);
    walk.find(narrowed.path)?;
    let Some(kind) = walk.kind() else {
        walk.skip_value()?;
        return Err(SubdocError::PathMismatch);
    };
    let mut count = 0;
    let mut next = walk.first(kind)?;
    while next.is_some() {
        walk.skip_value()?;
        count += 1;
        next = walk.next(kind)?;
    }
    Ok(count)
}
