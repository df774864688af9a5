//! Finds in the text of a document what a path names.
//!
//! A walk goes forwards and looks at each byte once. Last elements at the beginning of a path are found from the end of the
//! document by [`crate::from_end`]. Where a path asks for one farther on, which element that is shows only behind it, so the rest of the path is followed into every element, and what came of the last one
//! counts.

use crate::key::Key;
use crate::path::{Component, PATH_COMPONENTS_MAX};
use crate::scan::Scanner;
use crate::{JsonError, SubdocError};

/// Most arrays and objects inside one another in what sub-document operations read and make.
pub const SUBDOC_DEPTH_MAX: usize = PATH_COMPONENTS_MAX;

/// A member of an object or an element of an array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// What it is in; of the document, which is in nothing, it says nothing.
    pub(crate) kind: Kind,
    /// The comma before it.
    pub(crate) comma: Option<usize>,
    /// Its first byte.
    pub(crate) start: usize,
    /// Behind its name; `start` if it has none.
    name_end: usize,
    /// The first byte of its value.
    pub(crate) value: usize,
}

/// Where an entry would be that is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// The number of the component of the path.
    pub(crate) level: usize,
    /// Behind the last entry, or behind the opening bracket.
    pub(crate) at: usize,
    /// How many entries there are.
    pub(crate) entries: usize,
}

/// What came of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The walk is at the value of this entry. The document is one too.
    Found(Entry),
    /// A container has no such entry.
    Missing(Gap),
    /// Not such a container.
    Mismatch,
}

/// The two kinds of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
}

impl Kind {
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

/// A place in a document.
pub(crate) struct Walk<'d> {
    scanner: Scanner<'d>,
    /// Containers around this place.
    open: usize,
    /// Of those, the ones that the text is in.
    around: usize,
}

impl<'d> Walk<'d> {
    /// At the value of a document.
    pub(crate) fn new(document: &'d [u8]) -> Self {
        let mut scanner = Scanner::new(document);
        scanner.skip_space();
        Self {
            scanner,
            open: 0,
            around: 0,
        }
    }

    /// At a value that is in so many containers; its text is all that there is.
    pub(crate) fn within(text: &'d [u8], open: usize) -> Self {
        Self {
            open,
            around: open,
            ..Self::new(text)
        }
    }

    /// Bytes before this place.
    pub(crate) fn at(&self) -> usize {
        self.scanner.at()
    }

    /// The byte here.
    pub(crate) fn peek(&self) -> Option<u8> {
        self.scanner.peek()
    }

    /// The text from `start` to here.
    pub(crate) fn since(&self, start: usize) -> &'d [u8] {
        &self.scanner.text()[start..self.at()]
    }

    /// Follows a path from the document on.
    pub(crate) fn follow(&mut self, path: &[Component<'_>]) -> Result<Place, SubdocError> {
        let mut entry = self.entry_here();
        let mut level = 0;
        // The levels of arrays whose last element is asked for, of which this is in one that may be the last; a bit each.
        let mut lasts = 0_u32;
        loop {
            let place = loop {
                let Some(component) = path.get(level) else {
                    break Place::Found(entry);
                };
                match self.child(component, level)? {
                    Place::Found(child) => entry = child,
                    other => break other,
                }
                if matches!(component, Component::Last) {
                    lasts |= 1 << level;
                }
                level += 1;
            };
            // Is there a later element that counts instead?
            entry = loop {
                if lasts == 0 {
                    return Ok(self.back_to(place, self.around + path.len()));
                }
                level = lasts.ilog2() as usize;
                self.leave(self.around + level + 1)?;
                if let Some(next) = self.next(Kind::Array)? {
                    break next;
                }
                // It was the last one; what is around it goes on behind it.
                lasts &= !(1 << level);
            };
            level += 1;
        }
    }

    /// Goes to the value that a path names.
    pub(crate) fn find(&mut self, path: &[Component<'_>]) -> Result<Entry, SubdocError> {
        match self.follow(path)? {
            Place::Found(entry) => Ok(entry),
            Place::Missing(_) => Err(SubdocError::PathEnoent),
            Place::Mismatch => Err(SubdocError::PathMismatch),
        }
    }

    /// Goes to the first entry of the container here, or to its end.
    pub(crate) fn first(&mut self, kind: Kind) -> Result<Option<Entry>, SubdocError> {
        self.enter()?;
        self.scanner.skip_space();
        if self.peek() == Some(kind.closing()) {
            return Ok(None);
        }
        self.entry(kind, None).map(Some)
    }

    /// Goes from behind an entry's value to the next entry, or to the end of the container.
    pub(crate) fn next(&mut self, kind: Kind) -> Result<Option<Entry>, SubdocError> {
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

    /// The container here, if it is one.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::opened_by(self.peek())
    }

    /// Moves past the value here.
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

    /// The entry that a component of a path names in the value here.
    fn child(&mut self, component: &Component<'_>, level: usize) -> Result<Place, SubdocError> {
        let kind = match component {
            Component::Key(_) => Kind::Object,
            Component::Index(_) | Component::Last => Kind::Array,
        };
        match self.peek() {
            opening if Kind::opened_by(opening) == Some(kind) => {}
            Some(b'{' | b'[' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                return Ok(Place::Mismatch);
            }
            _ => return Err(SubdocError::DocNotjson),
        }
        let mut gap = Gap {
            level,
            at: self.at() + 1,
            entries: 0,
        };
        let mut next = self.first(kind)?;
        while let Some(entry) = next {
            let is_it = match component {
                Component::Key(key) => self.has_name(&entry, key),
                Component::Index(wanted) => gap.entries == *wanted,
                Component::Last => true,
            };
            if is_it {
                return Ok(Place::Found(entry));
            }
            self.skip_value()?;
            gap.at = self.at();
            gap.entries += 1;
            next = self.next(kind)?;
        }
        Ok(Place::Missing(gap))
    }

    #[inline]
    pub(crate) fn has_name(&self, member: &Entry, key: &Key<'_>) -> bool {
        key.is(&self.scanner.text()[member.start + 1..member.name_end - 1])
    }

    fn entry(&mut self, kind: Kind, comma: Option<usize>) -> Result<Entry, SubdocError> {
        let start = self.at();
        let mut name_end = start;
        if kind == Kind::Object {
            self.expect(b'"')?;
            self.scanner.string().map_err(not_json)?;
            name_end = self.at();
            self.scanner.skip_space();
            self.expect(b':')?;
            self.scanner.bump();
            self.scanner.skip_space();
        }
        Ok(Entry {
            kind,
            comma,
            start,
            name_end,
            value: self.at(),
        })
    }

    fn entry_here(&self) -> Entry {
        Entry {
            kind: Kind::Array,
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

    /// Moves behind the containers that are open beyond so many; or past the value here, if none are.
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

    /// Back to the value that was found, as deep in the document as the path is long.
    fn back_to(&mut self, place: Place, open: usize) -> Place {
        if let Place::Found(entry) = place {
            self.scanner.seek(entry.value);
            self.open = open;
        }
        place
    }
}

fn not_json(_: JsonError) -> SubdocError {
    SubdocError::DocNotjson
}
