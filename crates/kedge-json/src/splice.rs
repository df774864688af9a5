//! A new text from an old one and what is put into it.

use std::ops::Range;

use crate::path::Component;

/// What is put into a text.
#[derive(Clone, Copy)]
pub(crate) struct Inserted<'a> {
    value: &'a [u8],
    is_in_array: bool,
    /// Names to put before the value, each but the first in an object of its own.
    names: &'a [Component<'a>],
    comma_before: bool,
    comma_behind: bool,
}

impl<'a> Inserted<'a> {
    /// `value`, or several with commas between them.
    pub(crate) fn of(value: &'a [u8]) -> Self {
        Self {
            value,
            is_in_array: false,
            names: &[],
            comma_before: false,
            comma_behind: false,
        }
    }

    /// A new array of these values.
    pub(crate) fn in_array(values: &'a [u8]) -> Self {
        Self {
            is_in_array: true,
            ..Self::of(values)
        }
    }

    /// As a member with the first of these names, which is an object with the second one, and so on.
    pub(crate) fn named(self, names: &'a [Component<'a>]) -> Self {
        Self { names, ..self }
    }

    pub(crate) fn behind_another(self) -> Self {
        Self {
            comma_before: true,
            ..self
        }
    }

    pub(crate) fn before_another(self) -> Self {
        Self {
            comma_behind: true,
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
            if let Component::Key(key) = component {
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
        if self.comma_behind {
            out.push(b',');
        }
    }

    /// At least as many bytes as it has.
    fn bytes_max(&self) -> usize {
        let name_bytes = |component: &Component<'_>| match component {
            Component::Key(key) => key.bytes_max() + b"{:}".len(),
            Component::Index(_) | Component::Last => 0,
        };
        self.value.len() + self.names.iter().map(name_bytes).sum::<usize>() + b"[],,".len()
    }
}

/// `text` with something else in place of `range`.
pub(crate) fn splice(text: &[u8], range: Range<usize>, inserted: &Inserted<'_>) -> Vec<u8> {
    let kept_bytes = text.len() - range.len();
    let mut out = Vec::with_capacity(kept_bytes + inserted.bytes_max());
    copy(&text[..range.start], &mut out);
    inserted.write(&mut out);
    copy(&text[range.end..], &mut out);
    out
}

/// Appends a text in pieces. A long copy is one instruction of the processor in common C libraries, and on some
/// processors that takes ten times as long where source and target begin nearly at the same place of a page.
fn copy(text: &[u8], out: &mut Vec<u8>) {
    const PIECE_BYTES: usize = 1024;
    for piece in text.chunks(PIECE_BYTES) {
        out.extend_from_slice(piece);
    }
}
