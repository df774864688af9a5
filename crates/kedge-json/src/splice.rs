//! Construction of a new text from an old one and an insertion.

use std::ops::Range;

use crate::path::PathComponent;

/// A text to insert, with the brackets, names and commas around it.
#[derive(Clone, Copy)]
pub(crate) struct Insertion<'a> {
    value: &'a [u8],
    is_in_array: bool,
    /// Names before the value. Each but the first is in an object of its own.
    names: &'a [PathComponent<'a>],
    comma_before: bool,
    comma_after: bool,
}

impl<'a> Insertion<'a> {
    /// Creates an insertion of `value`, or of several values separated by commas.
    pub(crate) fn of(value: &'a [u8]) -> Self {
        Self {
            value,
            is_in_array: false,
            names: &[],
            comma_before: false,
            comma_after: false,
        }
    }

    /// Creates an insertion of a new array of these values.
    pub(crate) fn in_array(values: &'a [u8]) -> Self {
        Self {
            is_in_array: true,
            ..Self::of(values)
        }
    }

    /// Makes the insertion a member with the first of these names, whose value is an object with the second one, and so
    /// on.
    pub(crate) fn named(self, names: &'a [PathComponent<'a>]) -> Self {
        Self { names, ..self }
    }

    pub(crate) fn after_another(self) -> Self {
        Self {
            comma_before: true,
            ..self
        }
    }

    pub(crate) fn before_another(self) -> Self {
        Self {
            comma_after: true,
            ..self
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if self.comma_before {
            out.push(b',');
        }
        for (depth, component) in self.names.iter().enumerate() {
            if depth > 0 {
                out.push(b'{');
            }
            if let PathComponent::Key(key) = component {
                key.write(out);
            }
            out.push(b':');
        }
        if self.is_in_array {
            out.push(b'[');
        }
        out.extend_from_slice(self.value);
        if self.is_in_array {
            out.push(b']');
        }
        for _ in 1..self.names.len() {
            out.push(b'}');
        }
        if self.comma_after {
            out.push(b',');
        }
    }

    /// Returns an upper bound of the length in bytes.
    fn bytes_max(&self) -> usize {
        let name_bytes = |component: &PathComponent<'_>| match component {
            PathComponent::Key(key) => key.bytes_max() + b"{:}".len(),
            PathComponent::Index(_) | PathComponent::Last => 0,
        };
        self.value.len() + self.names.iter().map(name_bytes).sum::<usize>() + b"[],,".len()
    }
}

/// Returns `text` with the insertion in place of `range`.
pub(crate) fn splice(text: &[u8], range: Range<usize>, inserted: &Insertion<'_>) -> Vec<u8> {
    let kept_bytes = text.len() - range.len();
    let mut out = Vec::with_capacity(kept_bytes + inserted.bytes_max());
    copy(&text[..range.start], &mut out);
    inserted.write(&mut out);
    copy(&text[range.end..], &mut out);
    out
}

/// Appends a text in pieces. Common C libraries copy long ranges with one instruction, which takes ten times as long on
/// some processors if source and target start at nearly the same offset of a page.
fn copy(text: &[u8], out: &mut Vec<u8>) {
    const PIECE_BYTES: usize = 1024;
    for piece in text.chunks(PIECE_BYTES) {
        out.extend_from_slice(piece);
    }
}
