//! Users of a memcached port from a file in the form of memcached's `authfile`: a line `user:password` for each.
//!
//! The file has plain-text passwords, and so has a client's first command. They are compared by HMACs under a random
//! key, so that the duration reveals nothing about them.

use std::fmt;

use subtle::{Choice, ConstantTimeEq};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::error::AuthError;
use crate::hash::{Hash, Secret};
use crate::limits::{AUTH_FILE_USERS_MAX, PASSWORD_BYTES_MAX, USER_NAME_BYTES_MAX};
use crate::message;
use crate::random::random_bytes;

/// The reason why an `authfile` cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuthFileError {
    /// A line is not `user:password`.
    #[error(
        "line {line} is not \"user:password\" with a user of 1 to 128 and a password of 1 to 1024 bytes"
    )]
    Line {
        /// The number of the line, from 1.
        line: usize,
    },
    /// The file has no user, so nobody could log in.
    #[error("there is no user in it; write a line \"user:password\"")]
    Empty,
    /// The file has too many users.
    #[error("it has more than {AUTH_FILE_USERS_MAX} users")]
    TooMany,
    /// The system returned no random bytes.
    #[error(transparent)]
    Random(#[from] AuthError),
}

/// The users of an `authfile`.
pub struct AuthFile {
    key: Zeroizing<[u8; 32]>,
    tags: Vec<Secret>,
}

impl AuthFile {
    /// Reads the text of such a file. Lines may end as on Unix or on Windows; empty lines are skipped; a password may
    /// contain colons.
    ///
    /// # Errors
    /// [`AuthFileError`].
    pub fn parse(text: &[u8]) -> Result<Self, AuthFileError> {
        let mut file = Self {
            key: Zeroizing::new(random_bytes()?),
            tags: Vec::new(),
        };
        for (at, line) in text.split(|&byte| byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|&byte| byte == b':');
            let (user, password) = match colon {
                Some(colon) => (&line[..colon], &line[colon + 1..]),
                None => return Err(AuthFileError::Line { line: at + 1 }),
            };
            if !is_login(user, password) {
                return Err(AuthFileError::Line { line: at + 1 });
            }
            if file.tags.len() == AUTH_FILE_USERS_MAX {
                return Err(AuthFileError::TooMany);
            }
            let tag = file.tag(user, password);
            file.tags.push(tag);
        }
        if file.tags.is_empty() {
            return Err(AuthFileError::Empty);
        }
        Ok(file)
    }

    /// Returns whether the file has this user with this password.
    #[must_use]
    pub fn allows(&self, user: &[u8], password: &[u8]) -> bool {
        if !is_login(user, password) {
            return false;
        }
        let tag = self.tag(user, password);
        let found = self
            .tags
            .iter()
            .fold(Choice::from(0), |found, known| found | known.ct_eq(&tag));
        found.into()
    }

    /// Returns the user of a SASL PLAIN message, if the file has that user with the password of the message.
    #[must_use]
    pub fn allows_plain<'m>(&self, message: &'m [u8]) -> Option<&'m str> {
        let (user, password) = message::parse_plain(message).ok()?;
        self.allows(user.as_bytes(), password).then_some(user)
    }

    fn tag(&self, user: &[u8], password: &[u8]) -> Secret {
        Hash::Sha256.hmac(&*self.key, &[user, b"\0", password])
    }
}

/// Checks the lengths, and that neither contains a NUL, so that no two logins have the same tag.
fn is_login(user: &[u8], password: &[u8]) -> bool {
    let is_text = |text: &[u8], max| (1..=max).contains(&text.len()) && !text.contains(&0);
    is_text(user, USER_NAME_BYTES_MAX) && is_text(password, PASSWORD_BYTES_MAX)
}

impl fmt::Debug for AuthFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthFile")
            .field("users", &self.tags.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authfile_is_parsed_as_memcached_does() {
        for text in ["foo:bar\nbaaaz:qu:ux\n", "foo:bar\r\n\r\nbaaaz:qu:ux"] {
            let file = AuthFile::parse(text.as_bytes()).unwrap();
            assert!(file.allows(b"foo", b"bar") && file.allows(b"baaaz", b"qu:ux"));
            for (user, password) in [
                ("foo", "ba"),
                ("foo", "bar\r"),
                ("foo", ""),
                ("", "bar"),
                ("baaaz", "bar"),
                ("foo:bar", "bar"),
                ("foo", "b\0ar"),
            ] {
                let allowed = file.allows(user.as_bytes(), password.as_bytes());
                assert!(!allowed, "{user} {password}");
            }
            assert_eq!(file.allows_plain(b"\0foo\0bar"), Some("foo"));
            assert_eq!(file.allows_plain(b"\0foo\0baz"), None);
            assert_eq!(file.allows_plain(b"foo bar"), None);
            assert_eq!(format!("{file:?}"), "AuthFile { users: 2, .. }");
        }
    }

    #[test]
    fn authfile_without_users_or_with_invalid_lines_is_rejected() {
        let line = |text: &[u8]| match AuthFile::parse(text) {
            Err(AuthFileError::Line { line }) => line,
            other => panic!("{other:?}"),
        };
        assert_eq!(line(b"foo"), 1);
        assert_eq!(line(b"foo:bar\n:bar\n"), 2);
        assert_eq!(line(b"foo:bar\n\nfoo:\n"), 3);
        assert_eq!(line(&[&[b'u'; 129][..], b":p"].concat()), 1);
        assert!(matches!(
            AuthFile::parse(b"\n\n"),
            Err(AuthFileError::Empty)
        ));
        let many = "u:p\n".repeat(AUTH_FILE_USERS_MAX + 1);
        assert!(matches!(
            AuthFile::parse(many.as_bytes()),
            Err(AuthFileError::TooMany)
        ));
    }
}
