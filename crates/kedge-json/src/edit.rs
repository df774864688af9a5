//! Edits of parts of a document. The text around an edited part stays as it is.

use std::io::Write as _;

use crate::path::{Path, PathComponent};
use crate::splice::{Insertion, splice};
use crate::validate::{validate_list, validate_to_depth};
use crate::walk::{ContainerKind, DocumentWalk, InsertPosition, SUBDOC_DEPTH_MAX, WalkOutcome};
use crate::{JsonError, JsonErrorKind, SubdocError};

/// A change of the value that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'v> {
    /// Adds a member. Fails if it exists.
    DictAdd(&'v [u8]),
    /// Adds a member, or replaces its value.
    DictUpsert(&'v [u8]),
    /// Removes a member or an element, together with an adjacent comma and the white space after the comma.
    Delete,
    /// Replaces an existing value.
    Replace(&'v [u8]),
    /// Appends a value, or several values separated by commas, to an array.
    PushLast(&'v [u8]),
    /// Prepends a value, or several values separated by commas, to an array.
    PushFirst(&'v [u8]),
    /// Inserts a value, or several values separated by commas, before the element that the path names, or after the
    /// last one.
    Insert(&'v [u8]),
    /// Appends a string, number, `true`, `false` or `null` to an array of such values, unless the array has an element
    /// with the same text.
    AddUnique(&'v [u8]),
    /// Adds to an integer, or creates it.
    Counter(i64),
}

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedDocument {
    /// The text of the new document.
    pub document: Vec<u8>,
    /// The sum that [`Edit::Counter`] computed.
    pub number: Option<i64>,
}

/// Applies `edit` at `path` in `document`, which must be JSON. The result is JSON, too. The bytes of other values and
/// the white space around them stay as they are. Of members with the same name, the first one counts.
///
/// `make_parents` is the protocol's `mkdir_p`: it creates missing objects along the path, and a missing array that is
/// pushed to, but no missing array elements. It has no effect on `Delete`, `Replace` and `Insert`.
///
/// # Errors
/// `PathEinval` if the path does not suit the operation: an empty path for an operation on an entry, no name at the end
/// for `DictAdd` and `DictUpsert`, no number (`[-1]` is none) at the end for `Insert`. `ValueCantinsert`,
/// `ValueEtoodeep`,
/// `DeltaEinval`. These errors are detected before the document is read. Then `PathEnoent`, `PathMismatch`,
/// `PathEexists`,
/// `NumErange`, `DocE2deep`, `DocNotjson`; `ValueCantinsert` if a sum does not fit into 64 bits.
pub fn edit(
    document: &[u8],
    path: &Path<'_>,
    edit: Edit<'_>,
    make_parents: bool,
) -> Result<EditedDocument, SubdocError> {
    let path = path.components();
    check(path, edit)?;
    let target = EditTarget {
        document,
        path,
        make_parents,
    };
    let mut number = None;
    let document = match edit {
        Edit::DictAdd(value) => target.set(value, false),
        Edit::DictUpsert(value) => target.set(value, true),
        Edit::Delete => target.delete(),
        Edit::Replace(value) => target.replace(value),
        Edit::PushLast(values) => target.push(values, false),
        Edit::PushFirst(values) => target.push(values, true),
        Edit::Insert(values) => target.insert(values),
        Edit::AddUnique(value) => target.add_unique(value),
        Edit::Counter(delta) => {
            let (document, sum) = target.add(delta)?;
            number = Some(sum);
            Ok(document)
        }
    }?;
    Ok(EditedDocument { document, number })
}

/// Parses the delta of [`Edit::Counter`], the text of a JSON integer.
///
/// # Errors
/// `DeltaEinval` if it is not an integer, is 0, or does not fit into 64 bits.
pub fn parse_delta(text: &[u8]) -> Result<i64, SubdocError> {
    match whole_number(text) {
        Some(Ok(delta)) if delta != 0 => Ok(delta),
        _ => Err(SubdocError::DeltaEinval),
    }
}

/// Parses a JSON integer. Returns `None` if the text is something else, and the inner error if the integer does not fit
/// into 64 bits.
fn whole_number(text: &[u8]) -> Option<Result<i64, SubdocError>> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_whole = match digits {
        [] | [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    let text = str::from_utf8(text).ok().filter(|_| is_whole)?;
    Some(text.parse().map_err(|_| SubdocError::NumErange))
}

/// Length of the longest 64-bit integer, in bytes.
const NUMBER_BYTES_MAX: usize = b"-9223372036854775808".len();

fn number_text(number: i64, buffer: &mut [u8; NUMBER_BYTES_MAX]) -> &[u8] {
    let mut rest = buffer.as_mut_slice();
    write!(rest, "{number}").expect("there is room for any number");
    let len = NUMBER_BYTES_MAX - rest.len();
    &buffer[..len]
}

/// Checks that the path and the value suit the edit.
fn check(path: &[PathComponent<'_>], edit: Edit<'_>) -> Result<(), SubdocError> {
    let path_is_fine = match edit {
        Edit::DictAdd(_) | Edit::DictUpsert(_) => {
            matches!(path.last(), Some(PathComponent::Key(_)))
        }
        Edit::Insert(_) => matches!(path.last(), Some(PathComponent::Index(_))),
        Edit::Delete | Edit::Replace(_) | Edit::Counter(_) => !path.is_empty(),
        Edit::PushLast(_) | Edit::PushFirst(_) | Edit::AddUnique(_) => true,
    };
    if !path_is_fine {
        return Err(SubdocError::PathEinval);
    }
    // Each component of a path is in a container, and a pushed value is in one more.
    let depth_max = |around: usize| {
        SUBDOC_DEPTH_MAX
            .checked_sub(around)
            .ok_or(SubdocError::ValueEtoodeep)
    };
    match edit {
        Edit::DictAdd(value) | Edit::DictUpsert(value) | Edit::Replace(value) => {
            validate_to_depth(value, depth_max(path.len())?).map_err(cannot_insert)
        }
        Edit::Insert(values) => {
            validate_list(values, depth_max(path.len())?).map_err(cannot_insert)
        }
        Edit::PushLast(values) | Edit::PushFirst(values) => {
            validate_list(values, depth_max(path.len() + 1)?).map_err(cannot_insert)
        }
        // A container is no primitive, however deep.
        Edit::AddUnique(value) => {
            validate_to_depth(value, 0).map_err(|_| SubdocError::ValueCantinsert)?;
            depth_max(path.len() + 1).map(|_| ())
        }
        Edit::Counter(0) => Err(SubdocError::DeltaEinval),
        Edit::Counter(_) | Edit::Delete => Ok(()),
    }
}

fn cannot_insert(error: JsonError) -> SubdocError {
    match error.kind {
        JsonErrorKind::TooDeep => SubdocError::ValueEtoodeep,
        _ => SubdocError::ValueCantinsert,
    }
}

/// The document and the path of an edit.
struct EditTarget<'a> {
    document: &'a [u8],
    path: &'a [PathComponent<'a>],
    make_parents: bool,
}

impl EditTarget<'_> {
    fn set(&self, value: &[u8], may_replace: bool) -> Result<Vec<u8>, SubdocError> {
        let mut walk = DocumentWalk::new(self.document);
        match walk.follow(self.path)? {
            WalkOutcome::Found(_) if may_replace => self.replace_here(&mut walk, value),
            WalkOutcome::Found(_) => Err(SubdocError::PathEexists),
            WalkOutcome::Missing(gap) => self.make(gap, Insertion::of(value)),
            WalkOutcome::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    fn delete(&self) -> Result<Vec<u8>, SubdocError> {
        let mut walk = DocumentWalk::new(self.document);
        let entry = walk.find(self.path)?;
        walk.skip_value()?;
        let mut range = entry.start..walk.at();
        if let Some(comma) = entry.comma {
            range.start = comma;
        } else if let Some(next) = walk.next(entry.kind)? {
            range.end = next.start;
        }
        Ok(splice(self.document, range, &Insertion::of(b"")))
    }

    fn replace(&self, value: &[u8]) -> Result<Vec<u8>, SubdocError> {
        let mut walk = DocumentWalk::new(self.document);
        walk.find(self.path)?;
        self.replace_here(&mut walk, value)
    }

    fn push(&self, values: &[u8], is_first: bool) -> Result<Vec<u8>, SubdocError> {
        let mut walk = DocumentWalk::new(self.document);
        if let Some(gap) = self.missing_array(&mut walk)? {
            return self.make(gap, Insertion::in_array(values));
        }
        let start = walk.at();
        match walk.first(ContainerKind::Array)? {
            None => Ok(self.insert_at(start + 1, Insertion::of(values))),
            Some(first) if is_first => {
                Ok(self.insert_at(first.start, Insertion::of(values).before_another()))
            }
            Some(_) => loop {
                walk.skip_value()?;
                let end = walk.at();
                if walk.next(ContainerKind::Array)?.is_none() {
                    return Ok(self.insert_at(end, Insertion::of(values).after_another()));
                }
            },
        }
    }

    fn insert(&self, values: &[u8]) -> Result<Vec<u8>, SubdocError> {
        let inserted = Insertion::of(values);
        match DocumentWalk::new(self.document).follow(self.path)? {
            WalkOutcome::Found(entry) => Ok(self.insert_at(entry.start, inserted.before_another())),
            WalkOutcome::Missing(gap) => match &self.path[gap.level..] {
                [PathComponent::Index(index)] if *index == gap.entries => {
                    Ok(self.fill(gap, inserted))
                }
                _ => Err(SubdocError::PathEnoent),
            },
            WalkOutcome::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    fn add_unique(&self, value: &[u8]) -> Result<Vec<u8>, SubdocError> {
        let mut walk = DocumentWalk::new(self.document);
        if let Some(gap) = self.missing_array(&mut walk)? {
            return self.make(gap, Insertion::in_array(value));
        }
        let mut inserted = Insertion::of(value);
        let mut end = walk.at() + 1;
        let mut next = walk.first(ContainerKind::Array)?;
        while let Some(element) = next {
            if walk.kind().is_some() {
                return Err(SubdocError::PathMismatch);
            }
            walk.skip_value()?;
            if walk.since(element.value) == value.trim_ascii() {
                return Err(SubdocError::PathEexists);
            }
            end = walk.at();
            inserted = inserted.after_another();
            next = walk.next(ContainerKind::Array)?;
        }
        Ok(self.insert_at(end, inserted))
    }

    fn add(&self, delta: i64) -> Result<(Vec<u8>, i64), SubdocError> {
        let mut walk = DocumentWalk::new(self.document);
        match walk.follow(self.path)? {
            WalkOutcome::Found(entry) => {
                walk.skip_value()?;
                let number = whole_number(walk.since(entry.value));
                let sum = number
                    .ok_or(SubdocError::PathMismatch)??
                    .checked_add(delta)
                    .ok_or(SubdocError::ValueCantinsert)?;
                let range = entry.value..walk.at();
                let mut buffer = [0; NUMBER_BYTES_MAX];
                let text = Insertion::of(number_text(sum, &mut buffer));
                Ok((splice(self.document, range, &text), sum))
            }
            WalkOutcome::Missing(gap) => {
                let mut buffer = [0; NUMBER_BYTES_MAX];
                let text = Insertion::of(number_text(delta, &mut buffer));
                Ok((self.make(gap, text)?, delta))
            }
            WalkOutcome::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    /// Walks to the array that the path names. Returns its position if it does not exist.
    fn missing_array(
        &self,
        walk: &mut DocumentWalk<'_>,
    ) -> Result<Option<InsertPosition>, SubdocError> {
        match walk.follow(self.path)? {
            WalkOutcome::Found(_) if walk.kind() == Some(ContainerKind::Array) => Ok(None),
            WalkOutcome::Missing(gap) if self.make_parents => Ok(Some(gap)),
            WalkOutcome::Missing(_) => Err(SubdocError::PathEnoent),
            WalkOutcome::Found(_) | WalkOutcome::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    /// Creates the missing components of the path.
    fn make(&self, gap: InsertPosition, inserted: Insertion<'_>) -> Result<Vec<u8>, SubdocError> {
        let names = &self.path[gap.level..];
        let is_possible = names.len() == 1 || self.make_parents;
        if is_possible && names.iter().all(|it| matches!(it, PathComponent::Key(_))) {
            Ok(self.fill(gap, inserted.named(names)))
        } else {
            Err(SubdocError::PathEnoent)
        }
    }

    fn fill(&self, gap: InsertPosition, inserted: Insertion<'_>) -> Vec<u8> {
        let inserted = if gap.entries == 0 {
            inserted
        } else {
            inserted.after_another()
        };
        self.insert_at(gap.at, inserted)
    }

    fn insert_at(&self, at: usize, inserted: Insertion<'_>) -> Vec<u8> {
        splice(self.document, at..at, &inserted)
    }

    fn replace_here(
        &self,
        walk: &mut DocumentWalk<'_>,
        value: &[u8],
    ) -> Result<Vec<u8>, SubdocError> {
        let start = walk.at();
        walk.skip_value()?;
        Ok(splice(
            self.document,
            start..walk.at(),
            &Insertion::of(value),
        ))
    }
}
