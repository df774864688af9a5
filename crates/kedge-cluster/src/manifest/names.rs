//! Names of scopes and collections.

use kedge_types::limits::MANIFEST_NAME_BYTES_MAX;

/// The reason why a name is invalid for a new scope or collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestNameProblem {
    /// The name is empty or too long.
    #[error("Length must be in range from 1 to {MANIFEST_NAME_BYTES_MAX}")]
    Length,
    /// The name is reserved for the system.
    #[error("First character must not be _ or %")]
    FirstCharacter,
    /// The name has an invalid character.
    #[error("Can only contain characters A-Z, a-z, 0-9 and the following symbols _ - %")]
    Character,
}

/// Checks that a scope or a collection with this name may be created.
///
/// # Errors
/// [`ManifestNameProblem`].
pub fn check_manifest_name(name: &str) -> Result<(), ManifestNameProblem> {
    if name.is_empty() || name.len() > MANIFEST_NAME_BYTES_MAX {
        return Err(ManifestNameProblem::Length);
    }
    if name.starts_with(['_', '%']) {
        return Err(ManifestNameProblem::FirstCharacter);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-%".contains(&byte);
    if !name.bytes().all(is_plain) {
        return Err(ManifestNameProblem::Character);
    }
    Ok(())
}
