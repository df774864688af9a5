//! Walks through the text of a document to the value that a path names.
//!
//! A walk goes forward and reads each byte once. Leading `[-1]` components are resolved from the end of the document by
//! [`crate::from_end`]. A later one is resolved only at the end of its array, so the rest of the path is followed in
//! every element, and the result for the last one counts.

use crate::key::PathKey;
use crate::path::{PATH_COMPONENTS_MAX, PathComponent};
use crate::scan::Scanner;
use crate::{JsonError, SubdocError};

/// Largest number of nested arrays and objects in documents that sub-document operations read or create.
pub const SUBDOC_DEPTH_MAX: usize = PATH_COMPONENTS_MAX;

/// A member of an object or an element of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerEntry {
    /// The kind of the container. Meaningless for the document itself, which is in no container.
    pub(crate) kind: ContainerKind,
    /// Offset of the comma before it.
    pub(crate) comma: Option<usize>,
    /// Offset of its first byte.
    pub(crate) start: usize,
    /// Offset of the end of its name; `start` if it has none.
    name_end: usize,
    /// Offset of the first byte of its value.
    pub(crate) value: usize,
}

/// The position for an entry that does not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InsertPosition {
    /// The number of the path component that names it.
    pub(crate) level: usize,
    /// The offset after the last entry, or after the opening bracket.
    pub(crate) at: usize,
    /// The number of existing entries.
    pub(crate) entries: usize,
}

/// The result of a walk along a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WalkOutcome {
    /// The walk is at the value of this entry, which may be the document itself.
    Found(ContainerEntry),
    /// A container lacks the entry.
    Missing(InsertPosition),
    /// A value is not the container that the path expects.
    Mismatch,
}

/// The kind of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerKind {
    Object,
    Array,
}

impl ContainerKind {
    fn opened_by(byte: Option<u8>) -> Option<Self> {
        match byte {
            Some(b'{') => Some(Self::Object),
            Some(b'[') => Some(Self::Array),
            _ => None,
        }
    }

    fn closing(self) -> u8 {
        match self {
            Self::Object => b'}',
            Self::Array => b']',
        }
    }
}

/// A position in a document.
pub(crate) struct DocumentWalk<'d> {
    scanner: Scanner<'d>,
    /// Number of containers around the position.
    open: usize,
    /// Number of those that are around the whole text.
    around: usize,
}

impl<'d> DocumentWalk<'d> {
    /// Starts a walk at the value of a document.
    pub(crate) fn new(document: &'d [u8]) -> Self {
        let mut scanner = Scanner::new(document);
        scanner.skip_space();
        Self {
            scanner,
            open: 0,
            around: 0,
        }
    }

    /// Starts a walk at a value inside `open` containers. The text has that value only.
    pub(crate) fn within(text: &'d [u8], open: usize) -> Self {
        Self {
            open,
            around: open,
            ..Self::new(text)
        }
    }

    /// Returns the offset of the position, in bytes.
    pub(crate) fn at(&self) -> usize {
        self.scanner.at()
    }

    /// Returns the byte at the position.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.scanner.peek()
    }

    /// Returns the text from `start` to the position.
    pub(crate) fn since(&self, start: usize) -> &'d [u8] {
        &self.scanner.text()[start..self.at()]
    }

    /// Follows a path from the document.
    pub(crate) fn follow(
        &mut self,
        path: &[PathComponent<'_>],
    ) -> Result<WalkOutcome, SubdocError> {
        let mut entry = self.entry_here();
        let mut level = 0;
        // A bit for each level of an array that the path follows by `[-1]` and whose current element may be the last.
        let mut lasts = 0_u32;
        loop {
            let place = loop {
                let Some(component) = path.get(level) else {
                    break WalkOutcome::Found(entry);
                };
                match self.child(component, level)? {
                    WalkOutcome::Found(child) => entry = child,
                    other => break other,
                }
                if matches!(component, PathComponent::Last) {
                    lasts |= 1 << level;
                }
                level += 1;
            };
            // Look for a later element of such an array, which would count instead.
            entry = loop {
                if lasts == 0 {
                    return Ok(self.back_to(place, self.around + path.len()));
                }
                level = lasts.ilog2() as usize;
                self.leave(self.around + level + 1)?;
                if let Some(next) = self.next(ContainerKind::Array)? {
                    break next;
                }
                // It was the last one. The walk continues in the container around the array.
                lasts &= !(1 << level);
            };
            level += 1;
        }
    }

    /// Moves to the value that a path names.
    pub(crate) fn find(
        &mut self,
        path: &[PathComponent<'_>],
    ) -> Result<ContainerEntry, SubdocError> {
        match self.follow(path)? {
            WalkOutcome::Found(entry) => Ok(entry),
            WalkOutcome::Missing(_) => Err(SubdocError::PathEnoent),
            WalkOutcome::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    /// Moves to the first entry of the current container, or to its end.
    pub(crate) fn first(
        &mut self,
        kind: ContainerKind,
    ) -> Result<Option<ContainerEntry>, SubdocError> {
        self.enter()?;
        self.scanner.skip_space();
        if self.peek() == Some(kind.closing()) {
            return Ok(None);
        }
        self.entry(kind, None).map(Some)
    }

    /// Moves from after an entry's value to the next entry, or to the end of the container.
    pub(crate) fn next(
        &mut self,
        kind: ContainerKind,
    ) -> Result<Option<ContainerEntry>, SubdocError> {
        self.scanner.skip_space();
        match self.peek() {
            Some(b',') => {
                let comma = self.at();
                self.scanner.bump();
                self.scanner.skip_space();
                self.entry(kind, Some(comma)).map(Some)
            }
            Some(byte) if byte == kind.closing() => Ok(None),
            _ => Err(SubdocError::DocNotjson),
        }
    }

    /// Returns the kind of the current value, if it is a container.
    pub(crate) fn kind(&self) -> Option<ContainerKind> {
        ContainerKind::opened_by(self.peek())
    }

    /// Moves past the current value.
    #[inline]
    pub(crate) fn skip_value(&mut self) -> Result<(), SubdocError> {
        match self.peek() {
            Some(b'"') => self.scanner.string(),
            Some(b'-' | b'0'..=b'9') => self.scanner.number(),
            Some(b'{' | b'[') => {
                let around = self.open;
                self.enter()?;
                return self.leave(around);
            }
            Some(b't') => self.scanner.literal(b"true"),
            Some(b'f') => self.scanner.literal(b"false"),
            Some(b'n') => self.scanner.literal(b"null"),
            _ => return Err(SubdocError::DocNotjson),
        }
        .map_err(not_json)
    }

    /// Finds the entry of the current value that a component of a path names.
    fn child(
        &mut self,
        component: &PathComponent<'_>,
        level: usize,
    ) -> Result<WalkOutcome, SubdocError> {
        let kind = match component {
            PathComponent::Key(_) => ContainerKind::Object,
            PathComponent::Index(_) | PathComponent::Last => ContainerKind::Array,
        };
        match self.peek() {
            opening if ContainerKind::opened_by(opening) == Some(kind) => {}
            Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                return Ok(WalkOutcome::Mismatch);
            }
            _ => return Err(SubdocError::DocNotjson),
        }
        let mut gap = InsertPosition {
            level,
            at: self.at() + 1,
            entries: 0,
        };
        let mut next = self.first(kind)?;
        while let Some(entry) = next {
            let is_it = match component {
                PathComponent::Key(key) => self.has_name(&entry, key),
                PathComponent::Index(wanted) => gap.entries == *wanted,
                PathComponent::Last => true,
            };
            if is_it {
                return Ok(WalkOutcome::Found(entry));
            }
            self.skip_value()?;
            gap.at = self.at();
            gap.entries += 1;
            next = self.next(kind)?;
        }
        Ok(WalkOutcome::Missing(gap))
    }

    #[inline]
    pub(crate) fn has_name(&self, member: &ContainerEntry, key: &PathKey<'_>) -> bool {
        key.is(&self.scanner.text()[member.start + 1..member.name_end - 1])
    }

    fn entry(
        &mut self,
        kind: ContainerKind,
        comma: Option<usize>,
    ) -> Result<ContainerEntry, SubdocError> {
        let start = self.at();
        let mut name_end = start;
        if kind == ContainerKind::Object {
            self.expect(b'"')?;
            self.scanner.string().map_err(not_json)?;
            name_end = self.at();
            self.scanner.skip_space();
            self.expect(b':')?;
            self.scanner.bump();
            self.scanner.skip_space();
        }
        Ok(ContainerEntry {
            kind,
            comma,
            start,
            name_end,
            value: self.at(),
        })
    }

    fn entry_here(&self) -> ContainerEntry {
        ContainerEntry {
            kind: ContainerKind::Array,
            comma: None,
            start: self.at(),
            name_end: self.at(),
            value: self.at(),
        }
    }

    fn expect(&self, byte: u8) -> Result<(), SubdocError> {
        if self.peek() == Some(byte) {
            Ok(())
        } else {
            Err(SubdocError::DocNotjson)
        }
    }

    /// Moves past an opening bracket.
    fn enter(&mut self) -> Result<(), SubdocError> {
        if self.open == SUBDOC_DEPTH_MAX {
            return Err(SubdocError::DocE2deep);
        }
        self.open += 1;
        self.scanner.bump();
        Ok(())
    }

    /// Moves past the end of all containers deeper than `open`, or past the current value if there are none.
    pub(crate) fn leave(&mut self, open: usize) -> Result<(), SubdocError> {
        if self.open == open {
            return self.skip_value();
        }
        while self.open > open {
            match self.peek() {
                Some(b'"') => self.scanner.string().map_err(not_json)?,
                Some(b'{' | b'[') => self.enter()?,
                Some(b'}' | b']') => {
                    self.open -= 1;
                    self.scanner.bump();
                }
                Some(_) => self.scanner.bump(),
                None => return Err(SubdocError::DocNotjson),
            }
        }
        Ok(())
    }

    /// Moves back to the value that was found, at the depth of the path.
    fn back_to(&mut self, place: WalkOutcome, open: usize) -> WalkOutcome {
        if let WalkOutcome::Found(entry) = place {
            self.scanner.seek(entry.value);
            self.open = open;
        }
        place
    }
}

fn not_json(_: JsonError) -> SubdocError {
    SubdocError::DocNotjson
}
