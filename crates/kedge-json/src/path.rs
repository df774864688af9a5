//! Paths such as `a.b[3].c`.

use crate::SubdocError;
use crate::key::PathKey;

/// Length of the longest path, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// Largest number of components of a path.
pub const PATH_COMPONENTS_MAX: usize = 32;

/// A path to a part of a document, with the syntax of Couchbase's `SubDocument.md`.
///
/// * `a.b` is the member `b` of the member `a` of the document, which is an object.
/// * `a[3]` is the fourth element of the array `a`, `[0]` the first of a document that is an array. `[-1]` is the last;
///   other negative numbers are invalid. A bracket follows its array directly, or after a dot.
/// * A dot at the end is ignored.
/// * A part of a component in backticks is literal, dots and brackets included. Two backticks stand for one.
/// * Escape sequences are those of JSON strings: `\"` is a quotation mark. The document may escape the same name in
///   another way.
/// * The empty path names the document.
#[derive(Clone, Debug)]
pub struct Path<'p> {
    components: [PathComponent<'p>; PATH_COMPONENTS_MAX],
    len: usize,
}

/// A component of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PathComponent<'p> {
    /// The member with this name.
    Key(PathKey<'p>),
    /// The element with this number, from 0.
    Index(usize),
    /// The last element.
    Last,
}

impl<'p> Path<'p> {
    /// Parses a path.
    ///
    /// # Errors
    /// `PathE2big`, `PathE2deep`, or `PathEinval` if it is malformed.
    pub fn parse(text: &'p [u8]) -> Result<Self, SubdocError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(SubdocError::PathE2big);
        }
        if str::from_utf8(text).is_err() {
            return Err(SubdocError::PathEinval);
        }
        let mut path = Self {
            components: [PathComponent::Last; PATH_COMPONENTS_MAX],
            len: 0,
        };
        let mut rest = text;
        while !rest.is_empty() {
            let (component, after) = match rest {
                [b'[', inside @ ..] => index(inside)?,
                [b'.'] if path.len > 0 => break,
                [b'.', b'[', inside @ ..] if path.len > 0 => index(inside)?,
                [b'.', key @ ..] if path.len > 0 => key_of(key)?,
                key if path.len == 0 => key_of(key)?,
                _ => return Err(SubdocError::PathEinval),
            };
            let place = path.components.get_mut(path.len);
            *place.ok_or(SubdocError::PathE2deep)? = component;
            path.len += 1;
            rest = after;
        }
        Ok(path)
    }

    /// Returns `true` if the path names the whole document.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn components(&self) -> &[PathComponent<'p>] {
        &self.components[..self.len]
    }
}

fn key_of(text: &[u8]) -> Result<(PathComponent<'_>, &[u8]), SubdocError> {
    let (key, rest) = PathKey::split(text).ok_or(SubdocError::PathEinval)?;
    Ok((PathComponent::Key(key), rest))
}

/// Parses an index, from after the opening bracket. Returns the rest of the text, too.
fn index(text: &[u8]) -> Result<(PathComponent<'_>, &[u8]), SubdocError> {
    let end = text.iter().position(|&byte| byte == b']');
    let end = end.ok_or(SubdocError::PathEinval)?;
    let (number, rest) = (&text[..end], &text[end + 1..]);
    if number == b"-1" {
        return Ok((PathComponent::Last, rest));
    }
    if !number.iter().all(u8::is_ascii_digit) {
        return Err(SubdocError::PathEinval);
    }
    let number = str::from_utf8(number).ok().and_then(|it| it.parse().ok());
    Ok((
        PathComponent::Index(number.ok_or(SubdocError::PathEinval)?),
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use SubdocError::{PathE2big, PathE2deep, PathEinval};

    /// Formats the components as text, with names as in a document.
    fn shown(path: &str) -> Result<String, SubdocError> {
        let path = Path::parse(path.as_bytes())?;
        let shown = path.components().iter().map(|component| match component {
            PathComponent::Key(key) => {
                let mut text = Vec::new();
                key.write(&mut text);
                String::from_utf8(text).expect("UTF-8")
            }
            PathComponent::Index(index) => index.to_string(),
            PathComponent::Last => "-1".to_owned(),
        });
        Ok(shown.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn valid_paths_parse() {
        for (path, components) in [
            ("", ""),
            ("a", "\"a\""),
            ("a.b.c", "\"a\" \"b\" \"c\""),
            ("a[3].b", "\"a\" 3 \"b\""),
            ("[0]", "0"),
            ("[0][1][-1]", "0 1 -1"),
            ("[007].a", "7 \"a\""),
            ("`a.b`.c", "\"a.b\" \"c\""),
            ("`a[0]`[1]", "\"a[0]\" 1"),
            ("x`.`y`[`z", "\"x.y[z\""),
            ("``", "\"`\""),
            ("`back``tick``field`", "\"back`tick`field\""),
            ("```.```", "\"`.`\""),
            ("a b.c-d", "\"a b\" \"c-d\""),
            ("\u{e9}.\u{1f600}", "\"\u{e9}\" \"\u{1f600}\""),
            (r#"q\"q.\u00e9.\\"#, r#""q\"q" "\u00e9" "\\""#),
            // A dot at the end or before a bracket is ignored, as in Couchbase.
            ("a.", "\"a\""),
            ("a.b.", "\"a\" \"b\""),
            ("a[1].", "\"a\" 1"),
            ("[0].", "0"),
            ("`a.`.", "\"a.\""),
            ("array.[2]", "\"array\" 2"),
            ("a[3].[0]", "\"a\" 3 0"),
            ("a.[-1].b", "\"a\" -1 \"b\""),
            ("a.[3].[0].", "\"a\" 3 0"),
            ("-1", "\"-1\""),
            ("0", "\"0\""),
        ] {
            assert_eq!(shown(path).as_deref(), Ok(components), "{path}");
        }
    }

    #[test]
    fn malformed_paths_are_rejected() {
        for path in [
            ".",
            "..",
            "a..",
            "[0]..",
            ".a",
            ".[0]",
            "a..b",
            "a..[0]",
            "a.[",
            "a.[]",
            "a.[x]",
            "a.]",
            "a[",
            "a]",
            "a[]",
            "a[0",
            "a[0]b",
            "a[0]]",
            "a[-2]",
            "a[--1]",
            "a[+1]",
            "a[1.0]",
            "a[ 1]",
            "a[x]",
            "a[`0`]",
            "[",
            "]",
            "[]",
            "`",
            "`a",
            "a`",
            "`a``",
            "a.`b",
            "a[99999999999999999999]",
            "a\"b",
            "\"",
            "a\nb",
            "\0",
            "\\",
            "a\\x",
            "a\\u12",
            "a\\u12g4",
            "a\\",
            "`\\`",
            "\\`a`",
        ] {
            assert_eq!(shown(path), Err(PathEinval), "{path:?}");
        }
        for path in [b"\xff".as_slice(), b"a.\xc3", b"`\xed\xa0\x80`"] {
            assert_eq!(Path::parse(path).map(|_| ()), Err(PathEinval), "{path:?}");
        }
    }

    #[test]
    fn paths_have_a_length_limit_and_a_component_limit() {
        let long = "x".repeat(PATH_BYTES_MAX);
        assert!(shown(&long).is_ok());
        assert_eq!(shown(&format!("{long}x")), Err(PathE2big));
        assert_eq!(shown(&"[".repeat(PATH_BYTES_MAX + 1)), Err(PathE2big));
        let deep = vec!["a"; PATH_COMPONENTS_MAX].join(".");
        assert!(shown(&deep).is_ok());
        assert_eq!(shown(&format!("{deep}.a")), Err(PathE2deep));
        assert_eq!(shown(&format!("{deep}[0]")), Err(PathE2deep));
        assert_eq!(
            shown(&"[0]".repeat(PATH_COMPONENTS_MAX + 1)),
            Err(PathE2deep)
        );
    }
}
