//! Changing what a path names: the text around it stays as it is.

use std::io::Write as _;

use crate::path::{Component, Path};
use crate::splice::{Inserted, splice};
use crate::validate::{validate_list, validate_to_depth};
use crate::walk::{Gap, Kind, Place, SUBDOC_DEPTH_MAX, Walk};
use crate::{JsonError, JsonErrorKind, SubdocError};

/// A change of what a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit<'v> {
    /// Adds a member that is not there yet.
    DictAdd(&'v [u8]),
    /// Adds a member, or replaces its value.
    DictUpsert(&'v [u8]),
    /// Removes a member or an element, with a comma beside it and the white space behind that.
    Delete,
    /// Replaces a value that is there.
    Replace(&'v [u8]),
    /// Appends a value, or several with commas between them, to an array.
    PushLast(&'v [u8]),
    /// The same at the beginning of an array.
    PushFirst(&'v [u8]),
    /// The same in front of the element that the path names, or behind the last one.
    Insert(&'v [u8]),
    /// Appends a string, number, `true`, `false` or `null` to an array of such that does not have it, as text.
    AddUnique(&'v [u8]),
    /// Adds to a whole number, or makes one.
    Counter(i64),
}

/// A document after an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edited {
    /// Its text.
    pub document: Vec<u8>,
    /// The sum that [`Edit::Counter`] made.
    pub number: Option<i64>,
}

/// Makes `edit` at `path` in `document`, which is JSON; the result is JSON too. Bytes of other values, and white space
/// around them, stay as they are. Of members with the same name the first one counts.
///
/// `make_parents` is what the protocol calls `mkdir_p`: objects that the path goes through are made where there is no
/// member, and so is the array that is pushed to. An element of an array is not. It has no meaning for `Delete`,
/// `Replace` and `Insert`.
///
/// # Errors
/// `PathEinval` if the path is not for this operation: empty for one that is about an entry, without a name at the end
/// for `DictAdd` and `DictUpsert`, without a number (`[-1]` is none) for `Insert`. `ValueCantinsert`, `ValueEtoodeep`,
/// `DeltaEinval`. All of these are found before the document is read. Then `PathEnoent`, `PathMismatch`, `PathEexists`,
/// `NumErange`, `DocE2deep`, `DocNotjson`; `ValueCantinsert` if a sum does not fit 64 bits.
pub fn edit(
    document: &[u8],
    path: &Path<'_>,
    edit: Edit<'_>,
    make_parents: bool,
) -> Result<Edited, SubdocError> {
    let path = path.components();
    check(path, edit)?;
    let target = Target {
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
    Ok(Edited { document, number })
}

/// What [`Edit::Counter`] is to add: the text of a JSON number that is whole.
///
/// # Errors
/// `DeltaEinval` if it is another one, 0, or does not fit 64 bits.
pub fn parse_delta(text: &[u8]) -> Result<i64, SubdocError> {
    match whole_number(text) {
        Some(Ok(delta)) if delta != 0 => Ok(delta),
        _ => Err(SubdocError::DeltaEinval),
    }
}

/// The whole number that a JSON text is, `None` if it is something else. The inner error says that it does not fit.
fn whole_number(text: &[u8]) -> Option<Result<i64, SubdocError>> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_whole = match digits {
        [] | [b'0', _, ..] => false,
        digits => digits.iter().all(u8::is_ascii_digit),
    };
    let text = str::from_utf8(text).ok().filter(|_| is_whole)?;
    Some(text.parse().map_err(|_| SubdocError::NumErange))
}

/// Bytes of the longest whole number of 64 bits.
const NUMBER_BYTES_MAX: usize = b"-9223372036854775808".len();

fn number_text(number: i64, buffer: &mut [u8; NUMBER_BYTES_MAX]) -> &[u8] {
    let mut rest = buffer.as_mut_slice();
    write!(rest, "{number}").expect("there is room for any number");
    let len = NUMBER_BYTES_MAX - rest.len();
    &buffer[..len]
}

/// Whether the path and the value are such as this edit has.
fn check(path: &[Component<'_>], edit: Edit<'_>) -> Result<(), SubdocError> {
    let path_is_fine = match edit {
        Edit::DictAdd(_) | Edit::DictUpsert(_) => matches!(path.last(), Some(Component::Key(_))),
        Edit::Insert(_) => matches!(path.last(), Some(Component::Index(_))),
        Edit::Delete | Edit::Replace(_) | Edit::Counter(_) => !path.is_empty(),
        Edit::PushLast(_) | Edit::PushFirst(_) | Edit::AddUnique(_) => true,
    };
    if !path_is_fine {
        return Err(SubdocError::PathEinval);
    }
    // Each component of a path is in a container, and what is pushed is in one more.
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

/// What is to be changed.
struct Target<'a> {
    document: &'a [u8],
    path: &'a [Component<'a>],
    make_parents: bool,
}

impl Target<'_> {
    fn set(&self, value: &[u8], may_replace: bool) -> Result<Vec<u8>, SubdocError> {
        let mut walk = Walk::new(self.document);
        match walk.follow(self.path)? {
            Place::Found(_) if may_replace => self.replace_here(&mut walk, value),
            Place::Found(_) => Err(SubdocError::PathEexists),
            Place::Missing(gap) => self.make(gap, Inserted::of(value)),
            Place::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    fn delete(&self) -> Result<Vec<u8>, SubdocError> {
        let mut walk = Walk::new(self.document);
        let entry = walk.find(self.path)?;
        walk.skip_value()?;
        let mut range = entry.start..walk.at();
        if let Some(comma) = entry.comma {
            range.start = comma;
        } else if let Some(next) = walk.next(entry.kind)? {
            range.end = next.start;
        }
        Ok(splice(self.document, range, &Inserted::of(b"")))
    }

    fn replace(&self, value: &[u8]) -> Result<Vec<u8>, SubdocError> {
        let mut walk = Walk::new(self.document);
        walk.find(self.path)?;
        self.replace_here(&mut walk, value)
    }

    fn push(&self, values: &[u8], is_first: bool) -> Result<Vec<u8>, SubdocError> {
        let mut walk = Walk::new(self.document);
        if let Some(gap) = self.missing_array(&mut walk)? {
            return self.make(gap, Inserted::in_array(values));
        }
        let start = walk.at();
        match walk.first(Kind::Array)? {
            None => Ok(self.insert_at(start + 1, Inserted::of(values))),
            Some(first) if is_first => {
                Ok(self.insert_at(first.start, Inserted::of(values).before_another()))
            }
            Some(_) => loop {
                walk.skip_value()?;
                let end = walk.at();
                if walk.next(Kind::Array)?.is_none() {
                    return Ok(self.insert_at(end, Inserted::of(values).behind_another()));
                }
            },
        }
    }

    fn insert(&self, values: &[u8]) -> Result<Vec<u8>, SubdocError> {
        let inserted = Inserted::of(values);
        match Walk::new(self.document).follow(self.path)? {
            Place::Found(entry) => Ok(self.insert_at(entry.start, inserted.before_another())),
            Place::Missing(gap) => match &self.path[gap.level..] {
                [Component::Index(index)] if *index == gap.entries => Ok(self.fill(gap, inserted)),
                _ => Err(SubdocError::PathEnoent),
            },
            Place::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    fn add_unique(&self, value: &[u8]) -> Result<Vec<u8>, SubdocError> {
        let mut walk = Walk::new(self.document);
        if let Some(gap) = self.missing_array(&mut walk)? {
            return self.make(gap, Inserted::in_array(value));
        }
        let mut inserted = Inserted::of(value);
        let mut end = walk.at() + 1;
        let mut next = walk.first(Kind::Array)?;
        while let Some(element) = next {
            if walk.kind().is_some() {
                return Err(SubdocError::PathMismatch);
            }
            walk.skip_value()?;
            if walk.since(element.value) == value.trim_ascii() {
                return Err(SubdocError::PathEexists);
            }
            end = walk.at();
            inserted = inserted.behind_another();
            next = walk.next(Kind::Array)?;
        }
        Ok(self.insert_at(end, inserted))
    }

    fn add(&self, delta: i64) -> Result<(Vec<u8>, i64), SubdocError> {
        let mut walk = Walk::new(self.document);
        match walk.follow(self.path)? {
            Place::Found(entry) => {
                walk.skip_value()?;
                let number = whole_number(walk.since(entry.value));
                let sum = number
                    .ok_or(SubdocError::PathMismatch)??
                    .checked_add(delta)
                    .ok_or(SubdocError::ValueCantinsert)?;
                let range = entry.value..walk.at();
                let mut buffer = [0; NUMBER_BYTES_MAX];
                let text = Inserted::of(number_text(sum, &mut buffer));
                Ok((splice(self.document, range, &text), sum))
            }
            Place::Missing(gap) => {
                let mut buffer = [0; NUMBER_BYTES_MAX];
                let text = Inserted::of(number_text(delta, &mut buffer));
                Ok((self.make(gap, text)?, delta))
            }
            Place::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    /// Goes to the array that the path names. Where it would be if it is not there.
    fn missing_array(&self, walk: &mut Walk<'_>) -> Result<Option<Gap>, SubdocError> {
        match walk.follow(self.path)? {
            Place::Found(_) if walk.kind() == Some(Kind::Array) => Ok(None),
            Place::Missing(gap) if self.make_parents => Ok(Some(gap)),
            Place::Missing(_) => Err(SubdocError::PathEnoent),
            Place::Found(_) | Place::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    /// Makes what of the path is not there.
    fn make(&self, gap: Gap, inserted: Inserted<'_>) -> Result<Vec<u8>, SubdocError> {
        let names = &self.path[gap.level..];
        let is_possible = names.len() == 1 || self.make_parents;
        if is_possible && names.iter().all(|it| matches!(it, Component::Key(_))) {
            Ok(self.fill(gap, inserted.named(names)))
        } else {
            Err(SubdocError::PathEnoent)
        }
    }

    fn fill(&self, gap: Gap, inserted: Inserted<'_>) -> Vec<u8> {
        let inserted = if gap.entries == 0 {
            inserted
        } else {
            inserted.behind_another()
        };
        self.insert_at(gap.at, inserted)
    }

    fn insert_at(&self, at: usize, inserted: Inserted<'_>) -> Vec<u8> {
        splice(self.document, at..at, &inserted)
    }

    fn replace_here(&self, walk: &mut Walk<'_>, value: &[u8]) -> Result<Vec<u8>, SubdocError> {
        let start = walk.at();
        walk.skip_value()?;
        Ok(splice(
            self.document,
            start..walk.at(),
            &Inserted::of(value),
        ))
    }
}
