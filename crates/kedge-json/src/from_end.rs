//! Finds the last element of an array from its end: the elements before it are not looked at.
//!
//! Backwards, a quotation mark ends a string or begins one. Inside of a string each one is behind an odd number of
//! backslashes, and the one that begins it is behind none, so the nearest one behind an even number is the beginning.

use crate::SubdocError;
use crate::path::Component;

/// A part of a document, and what is left of a path to follow in it.
pub(crate) struct Narrowed<'d, 'p> {
    /// The text of a value.
    pub(crate) text: &'d [u8],
    /// How many containers it is in.
    pub(crate) open: usize,
    /// The components behind those that led there.
    pub(crate) path: &'p [Component<'p>],
}

/// Follows the components at the beginning of a path that ask for last elements. The document is JSON.
///
/// # Errors
/// `PathMismatch` where there is no array, `PathEnoent` where one is empty.
pub(crate) fn narrow<'d, 'p>(
    document: &'d [u8],
    path: &'p [Component<'p>],
) -> Result<Narrowed<'d, 'p>, SubdocError> {
    let mut narrowed = Narrowed {
        text: document,
        open: 0,
        path,
    };
    while let [Component::Last, rest @ ..] = narrowed.path {
        narrowed.text = last_element(narrowed.text.trim_ascii())?;
        narrowed.open += 1;
        narrowed.path = rest;
    }
    Ok(narrowed)
}

/// The text of the last element of an array without white space around it.
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

/// Where the string begins that ends with the quotation mark at `end`.
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

/// Where the container begins that ends with the last byte.
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
    fn last_elements_of_each_kind() {
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
    fn what_has_no_last_element() {
        assert_eq!(last("[ ]", "[-1]"), Err(SubdocError::PathEnoent));
        assert_eq!(last("[[]]", "[-1][-1]"), Err(SubdocError::PathEnoent));
        for document in ["{}", "1", "\"[1]\"", "null"] {
            let found = last(document, "[-1]");
            assert_eq!(found, Err(SubdocError::PathMismatch), "{document}");
        }
    }
}
