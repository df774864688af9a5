//! Names of groups and defined roles, and texts for display.

use crate::error::{AuthError, UserNameProblem};
use crate::limits::{RESERVED_PREFIX, USER_NAME_BYTES_MAX};

/// Returns whether a name of a user or group is reserved for the server, such as the user as which nodes of a cluster
/// log in to each other. Nobody creates, changes or removes these.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED_PREFIX)
}

pub(crate) fn check_unreserved(name: &str) -> Result<(), AuthError> {
    match is_reserved(name) {
        true => Err(AuthError::ReservedName(name.to_owned())),
        false => Ok(()),
    }
}

/// Checks a group name: letters, digits, `-`, `_` and `.`, beginning with a letter or digit.
pub(crate) fn check_group_name(name: &str) -> Result<(), AuthError> {
    let bad = |problem| Err(AuthError::BadGroupName(problem));
    let Some(first) = name.chars().next() else {
        return bad(UserNameProblem::Empty);
    };
    if name.len() > USER_NAME_BYTES_MAX {
        return bad(UserNameProblem::TooLong(USER_NAME_BYTES_MAX));
    }
    if !first.is_alphanumeric() {
        return bad(UserNameProblem::Forbidden(first));
    }
    let is_fine = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    match name.chars().find(|&c| !is_fine(c)) {
        Some(c) => bad(UserNameProblem::Forbidden(c)),
        None => Ok(()),
    }
}

/// Checks a text for display: any characters but those that control terminals.
pub(crate) fn check_text(text: &str, bytes_max: usize) -> Result<(), UserNameProblem> {
    if text.len() > bytes_max {
        return Err(UserNameProblem::TooLong(bytes_max));
    }
    let control = text.chars().find(|c| c.is_control());
    control.map_or(Ok(()), |c| Err(UserNameProblem::Forbidden(c)))
}
