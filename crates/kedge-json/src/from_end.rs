//! Backward search for the last element of an array, which does not read the elements before it.
//!
//! When the text is read backwards, a quotation mark may end or begin a string. Each quotation mark inside a string
//! follows an odd number of backslashes, and the one that begins the string follows none. So the nearest one after an
//! even number of backslashes is the beginning.

use crate::SubdocError;
use crate::path::PathComponent;

/// A part of a document, and the rest of a path to follow in it.
pub(crate) struct NarrowedDocument<'d, 'p> {
    /// The text of a value.
    pub(crate) text: &'d [u8],
    /// The number of containers around it.
    pub(crate) open: usize,
    /// The components that are left.
    pub(crate) path: &'p [PathComponent<'p>],
}

/// Follows the leading components of a path as long as they name last elements. The document must be JSON.
///
/// # Errors
/// `PathMismatch` if a value is no array, `PathEnoent` if an array is empty.
pub(crate) fn narrow<'d, 'p>(
    document: &'d [u8],
    path: &'p [PathComponent<'p>],
) -> Result<NarrowedDocument<'d, 'p>, SubdocError> {
    let mut narrowed = NarrowedDocument {
        text: document,
        open: 0,
        path,
    };
    while let [PathComponent::Last, rest @ ..] = narrowed.path {
        narrowed.text = last_element(narrowed.text.trim_ascii())?;
        narrowed.open += 1;
        narrowed.path = rest;
    }
    Ok(narrowed)
}

/// Returns the text of an array's last element, without white space around it.
fn last_element(array: &[u8]) -> Result<&[u8], SubdocError> {
    let inside = match array {
        [b'[', inside @ .., b']'] => inside.trim_ascii(),
        [b'{' | b'"' | b'-' | b'0'..=b'9' | b't' | b'f' | b'n', ..] => {
            return Err(SubdocError::PathMismatch);
        }
        _ => return Err(SubdocError::DocNotjson),
    };
    let start = match inside.last() {
        None => return Err(SubdocError::PathEnoent),
        Some(b'"') => string_start(inside, inside.len() - 1)?,
        Some(b']' | b'}') => container_start(inside)?,
        Some(_) => {
            let ends = |byte: &u8| matches!(byte, b',' | b' ' | b'\t' | b'\n' | b'\r');
            inside.iter().rposition(ends).map_or(0, |at| at + 1)
        }
    };
    Ok(&inside[start..])
}

/// Returns the offset of the first byte of the string that ends with the quotation mark at `end`.
fn string_start(text: &[u8], end: usize) -> Result<usize, SubdocError> {
    let mut end = end;
    loop {
        let quote = text[..end].iter().rposition(|&byte| byte == b'"');
        let quote = quote.ok_or(SubdocError::DocNotjson)?;
        let before = text[..quote].iter().rev();
        if before.take_while(|&&byte| byte == b'\\').count() % 2 == 0 {
            return Ok(quote);
        }
        end = quote;
    }
}

/// Returns the offset of the first byte of the container that ends with the last byte.
fn container_start(text: &[u8]) -> Result<usize, SubdocError> {
    let (mut at, mut open) = (text.len(), 0_usize);
    while at > 0 {
        at -= 1;
        match text[at] {
            b'"' => at = string_start(text, at)?,
            b']' | b'}' => open += 1,
            b'[' | b'{' => {
                open -= 1;
                if open == 0 {
                    return Ok(at);
                }
            }
            _ => {}
        }
    }
    Err(SubdocError::DocNotjson)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Path;

    fn last(document: &str, path: &str) -> Result<(String, usize), SubdocError> {
        let path = Path::parse(path.as_bytes()).unwrap();
        let narrowed = narrow(document.as_bytes(), path.components())?;
        let text = String::from_utf8(narrowed.text.to_vec()).unwrap();
        assert_eq!(narrowed.path.len() + narrowed.open, path.components().len());
        Ok((text, narrowed.open))
    }

    #[test]
    fn last_element_of_an_array_is_found_for_each_kind_of_value() {
        for (document, element) in [
            ("[1]", "1"),
            (" [1, 23 ] ", "23"),
            ("[1,-2.5e-3]", "-2.5e-3"),
            ("[[1],\ttrue\n]", "true"),
            (r#"["a","b"]"#, r#""b""#),
            (r#"["a","b\"c"]"#, r#""b\"c""#),
            (r#"["a","\\"]"#, r#""\\""#),
            (r#"["a\\","\\\"[{,"]"#, r#""\\\"[{,""#),
            (
                r#"[1,{"a":"]","b":[1,"}\""]}]"#,
                r#"{"a":"]","b":[1,"}\""]}"#,
            ),
            (r#"[[[]],[]]"#, "[]"),
            (r#"[""]"#, r#""""#),
        ] {
            let found = last(document, "[-1]").unwrap();
            assert_eq!(found, (element.to_owned(), 1), "{document}");
        }
        let nested = last("[0,[1,[2, 3 ]]]", "[-1][-1][-1].a");
        assert_eq!(nested, Ok(("3".to_owned(), 3)));
        assert_eq!(last("[1]", "a[-1]"), Ok(("[1]".to_owned(), 0)));
    }

    #[test]
    fn empty_arrays_and_other_values_have_no_last_element() {
        assert_eq!(last("[ ]", "[-1]"), Err(SubdocError::PathEnoent));
        assert_eq!(last("[[]]", "[-1][-1]"), Err(SubdocError::PathEnoent));
        for document in ["{}", "1", "\"[1]\"", "null"] {
            let found = last(document, "[-1]");
            assert_eq!(found, Err(SubdocError::PathMismatch), "{document}");
        }
    }
}
