//! What of a vBucket a stream is about.

use kedge_types::{CollectionId, Status, decode_leb128};

/// Id of the default scope.
const DEFAULT_SCOPE: u32 = 0;

/// Which documents a stream has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// All.
    #[default]
    Everything,
    /// Those of some collections.
    Collections(Box<[CollectionId]>),
    /// Those of a scope's collections.
    Scope(u32),
}

impl Filter {
    /// Whether the collections or the scope exist. The default ones do, and no others yet.
    ///
    /// # Errors
    /// [`Status::UnknownCollection`], [`Status::UnknownScope`].
    pub fn check(&self) -> Result<(), Status> {
        match self {
            Self::Collections(ids) if ids.iter().any(|id| *id != CollectionId::DEFAULT) => {
                Err(Status::UnknownCollection)
            }
            Self::Scope(scope) if *scope != DEFAULT_SCOPE => Err(Status::UnknownScope),
            _ => Ok(()),
        }
    }

    /// Whether a document with this stored key belongs to it.
    #[must_use]
    pub fn admits(&self, stored_key: &[u8]) -> bool {
        let collection = || decode_leb128(stored_key).map(|(id, _)| CollectionId(id));
        match self {
            Self::Everything => true,
            Self::Collections(ids) => collection().is_some_and(|id| ids.contains(&id)),
            // Every collection that exists is in the scope that exists.
            Self::Scope(_) => collection() == Some(CollectionId::DEFAULT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_admits_what_it_names() {
        let collections = Filter::Collections([0, 0x555].map(CollectionId).into());
        for (filter, default, other, third) in [
            (Filter::Everything, true, true, true),
            (collections, true, true, false),
            (Filter::Scope(0), true, false, false),
        ] {
            let admitted = [&b"\x00k"[..], b"\xd5\x0ak", b"\x08k"].map(|key| filter.admits(key));
            assert_eq!(admitted, [default, other, third], "{filter:?}");
        }
        assert!(!Filter::Scope(0).admits(b"\x80"), "no key");
    }

    #[test]
    fn what_does_not_exist_is_said() {
        let ids =
            |ids: &[u32]| Filter::Collections(ids.iter().copied().map(CollectionId).collect());
        assert_eq!(ids(&[0]).check(), Ok(()));
        assert_eq!(ids(&[0, 8]).check(), Err(Status::UnknownCollection));
        assert_eq!(Filter::Scope(0).check(), Ok(()));
        assert_eq!(Filter::Scope(8).check(), Err(Status::UnknownScope));
        assert_eq!(Filter::Everything.check(), Ok(()));
    }
}
