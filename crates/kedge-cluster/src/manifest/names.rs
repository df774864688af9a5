//! Names of scopes and collections.

use kedge_types::limits::MANIFEST_NAME_BYTES_MAX;

/// Why a name cannot be a scope's or a collection's that somebody makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameProblem {
    /// It is empty or too long.
    #[error("Length must be in range from 1 to {MANIFEST_NAME_BYTES_MAX}")]
    Length,
    /// It is one of the system's names.
    #[error("First character must not be _ or %")]
    FirstCharacter,
    /// It has other characters.
    #[error("Can only contain characters A-Z, a-z, 0-9 and the following symbols _ - %")]
    Character,
}

/// Whether a scope or a collection may be made with this name.
///
/// # Errors
/// [`NameProblem`].
pub fn check_manifest_name(name: &str) -> Result<(), NameProblem> {
    if name.is_empty() || name.len() > MANIFEST_NAME_BYTES_MAX {
        return Err(NameProblem::Length);
    }
    if name.starts_with(['_', '%']) {
        return Err(NameProblem::FirstCharacter);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-%".contains(&byte);
    if !name.bytes().all(is_plain) {
        return Err(NameProblem::Character);
    }
    Ok(())
}
