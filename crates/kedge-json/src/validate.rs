//! Validation of JSON text.

use crate::scan::Scanner;
use crate::{JsonError, JsonErrorKind};

/// Largest number of nested arrays and objects. The server does not treat a deeper text as JSON: it stores the text
/// unchanged, without the JSON datatype. RFC 8259 section 9 allows such a limit.
pub const MAX_DEPTH: usize = 1024;

/// Returns `true` if `text` is one JSON value with optional white space around it, as in RFC 8259: UTF-8, no control
/// characters in strings, strict numbers, no byte order mark. Unpaired surrogates in escape sequences are accepted.
#[must_use]
pub fn is_json(text: &[u8]) -> bool {
    validate(text).is_ok()
}

/// Validates a text as [`is_json`] does, and reports the reason of a failure.
///
/// # Errors
/// [`JsonError`] at the first wrong byte. Invalid UTF-8 inside strings is reported only if the text has no other error.
pub fn validate(text: &[u8]) -> Result<(), JsonError> {
    validate_to_depth(text, MAX_DEPTH)
}

/// Validates `text` as one JSON value or several separated by commas, none with more than `depth_max` nested arrays and
/// objects.
///
/// # Errors
/// The errors of [`validate`].
pub(crate) fn validate_list(text: &[u8], depth_max: usize) -> Result<(), JsonError> {
    let mut scanner = Scanner::new(text);
    loop {
        value(&mut scanner, depth_max)?;
        scanner.skip_space();
        if scanner.peek() != Some(b',') {
            return end(&mut scanner);
        }
        scanner.bump();
    }
}

/// Validates a text as [`validate`] does, with at most `depth_max` nested arrays and objects.
///
/// # Errors
/// The errors of [`validate`].
pub(crate) fn validate_to_depth(text: &[u8], depth_max: usize) -> Result<(), JsonError> {
    let mut scanner = Scanner::new(text);
    value(&mut scanner, depth_max)?;
    end(&mut scanner)
}

/// Checks that nothing follows and that all strings were UTF-8.
fn end(scanner: &mut Scanner<'_>) -> Result<(), JsonError> {
    scanner.skip_space();
    if scanner.peek().is_some() {
        return Err(scanner.error(JsonErrorKind::TrailingText));
    }
    if scanner.saw_beyond_ascii() {
        std::str::from_utf8(scanner.text()).map_err(|error| JsonError {
            offset: error.valid_up_to(),
            kind: JsonErrorKind::BadUtf8,
        })?;
    }
    Ok(())
}

/// Moves past one value, including its contents.
fn value(scanner: &mut Scanner<'_>, depth_max: usize) -> Result<(), JsonError> {
    let mut open = Nesting::new(depth_max);
    loop {
        scanner.skip_space();
        match scanner.peek() {
            Some(b'"') => scanner.string()?,
            Some(b'-' | b'0'..=b'9') => scanner.number()?,
            Some(b'{') => {
                open.push(Container::Object)
                    .map_err(|TooDeep| scanner.error(JsonErrorKind::TooDeep))?;
                scanner.bump();
                scanner.skip_space();
                if scanner.peek() != Some(b'}') {
                    name(scanner)?;
                    continue;
                }
            }
            Some(b'[') => {
                open.push(Container::Array)
                    .map_err(|TooDeep| scanner.error(JsonErrorKind::TooDeep))?;
                scanner.bump();
                scanner.skip_space();
                if scanner.peek() != Some(b']') {
                    continue;
                }
            }
            Some(b't') => scanner.literal(b"true")?,
            Some(b'f') => scanner.literal(b"false")?,
            Some(b'n') => scanner.literal(b"null")?,
            _ => return Err(scanner.error(JsonErrorKind::UnexpectedByte)),
        }
        // A value has ended, or its container is about to end.
        loop {
            let Some(container) = open.top() else {
                return Ok(());
            };
            scanner.skip_space();
            match (scanner.peek(), container) {
                (Some(b','), Container::Array) => {
                    scanner.bump();
                    break;
                }
                (Some(b','), Container::Object) => {
                    scanner.bump();
                    scanner.skip_space();
                    name(scanner)?;
                    break;
                }
                (Some(b']'), Container::Array) | (Some(b'}'), Container::Object) => {
                    scanner.bump();
                    open.pop();
                }
                _ => return Err(scanner.error(JsonErrorKind::UnexpectedByte)),
            }
        }
    }
}

/// Moves past a member's name and its colon.
#[inline]
fn name(scanner: &mut Scanner<'_>) -> Result<(), JsonError> {
    if scanner.peek() != Some(b'"') {
        return Err(scanner.error(JsonErrorKind::UnexpectedByte));
    }
    scanner.string()?;
    scanner.skip_space();
    if scanner.peek() != Some(b':') {
        return Err(scanner.error(JsonErrorKind::UnexpectedByte));
    }
    scanner.bump();
    Ok(())
}

#[derive(Clone, Copy)]
enum Container {
    Array,
    Object,
}

struct TooDeep;

/// The open containers, one bit each, set for an object.
struct Nesting {
    objects: [u64; MAX_DEPTH / 64],
    depth: usize,
    depth_max: usize,
}

const _: () = assert!(MAX_DEPTH.is_multiple_of(64));

impl Nesting {
    fn new(depth_max: usize) -> Self {
        Self {
            objects: [0; MAX_DEPTH / 64],
            depth: 0,
            depth_max: depth_max.min(MAX_DEPTH),
        }
    }

    #[inline]
    fn push(&mut self, container: Container) -> Result<(), TooDeep> {
        if self.depth == self.depth_max {
            return Err(TooDeep);
        }
        let word = self.objects.get_mut(self.depth / 64).ok_or(TooDeep)?;
        let bit = 1 << (self.depth % 64);
        match container {
            Container::Array => *word &= !bit,
            Container::Object => *word |= bit,
        }
        self.depth += 1;
        Ok(())
    }

    /// Returns the innermost open container.
    #[inline]
    fn top(&self) -> Option<Container> {
        let index = self.depth.checked_sub(1)?;
        Some(if self.objects[index / 64] >> (index % 64) & 1 == 1 {
            Container::Object
        } else {
            Container::Array
        })
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
    }
}
