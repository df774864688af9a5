//! The privileges of a connection's user, computed once and not per command.
//!
//! Most users have their privileges in the whole bucket: for them a check costs one AND. Users with roles for scopes or
//! collections pay for a comparison of names, and only where the privileges in the whole bucket do not suffice.

use kedge_auth::{PartialPrivileges, Roles};
use kedge_types::Manifest;

use super::Rights;

/// The privileges of a user in the selected bucket, and in the scopes and collections for which it has roles of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EffectivePrivileges {
    /// Privileges in the whole bucket.
    rights: Rights,
    /// Further privileges, in parts of the bucket.
    parts: Vec<PartialPrivileges>,
}

impl From<Rights> for EffectivePrivileges {
    fn from(rights: Rights) -> Self {
        Self {
            rights,
            parts: Vec::new(),
        }
    }
}

impl EffectivePrivileges {
    /// The privileges of a user with these roles in `bucket`, or on the node without one. A guest has those of every memcached
    /// client, too.
    pub(crate) fn compute(
        roles: Option<&Roles>,
        bucket: Option<&str>,
        is_memcached_guest: bool,
    ) -> Self {
        let own = roles.map_or(Rights::NONE, |roles| Rights::of(roles, bucket));
        let rights = if is_memcached_guest {
            Rights::MEMCACHED.and(own)
        } else {
            own
        };
        let parts = match (roles, bucket) {
            (Some(roles), Some(bucket)) if rights != Rights::ALL => roles.parts(bucket),
            _ => Vec::new(),
        };
        Self { rights, parts }
    }

    /// Privileges in the whole bucket.
    #[inline]
    pub(crate) fn rights(&self) -> Rights {
        self.rights
    }

    /// Returns true if these privileges are held in the whole bucket.
    #[inline]
    pub(crate) fn allow(&self, needed: Rights) -> bool {
        self.rights.allow(needed)
    }

    /// Returns true if these privileges are held in the whole bucket or in a part of it.
    pub(crate) fn allow_somewhere(&self, needed: Rights) -> bool {
        let in_part = |part: &PartialPrivileges| self.rights.and(Rights(part.privileges()));
        self.allow(needed) || self.parts.iter().any(|part| in_part(part).allow(needed))
    }

    /// Returns true if these privileges are held in the collection.
    pub(crate) fn allow_in(&self, scope: &str, collection: &str, needed: Rights) -> bool {
        self.in_collection(scope, collection).allow(needed)
    }

    /// The privileges in a collection.
    pub(super) fn in_collection(&self, scope: &str, collection: &str) -> Rights {
        let covering = self.parts.iter();
        let covering = covering.filter(|part| part.covers(scope, Some(collection)));
        covering.fold(self.rights, |held, part| {
            held.and(Rights(part.privileges()))
        })
    }

    /// Returns true if a stream that was opened with the privileges `before` may go on with these. A stream of a part of the
    /// bucket may while the privileges in parts stay the same.
    pub(super) fn keep_streams(&self, before: &Self) -> bool {
        self.allow(Rights::STREAM)
            || (self.allow_somewhere(Rights::STREAM) && self.parts == before.parts)
    }

    /// Returns true if the user has any privilege in the whole bucket, beside that of seeing it.
    fn sees_all(&self) -> bool {
        self.rights != Rights::ACCESS
    }

    /// Returns true if the user has any privilege in the scope, or in a collection of it.
    pub(crate) fn sees_scope(&self, scope: &str) -> bool {
        self.sees_all() || self.parts.iter().any(|part| part.touches(scope))
    }

    /// Returns true if the user has any privilege in the collection.
    pub(crate) fn sees_collection(&self, scope: &str, collection: &str) -> bool {
        let mut parts = self.parts.iter();
        self.sees_all() || parts.any(|part| part.covers(scope, Some(collection)))
    }

    /// The scopes and collections of the manifest in which the user has any privilege.
    pub(crate) fn visible(&self, manifest: &Manifest) -> Manifest {
        let mut visible = manifest.clone();
        if self.sees_all() {
            return visible;
        }
        visible.scopes.retain_mut(|scope| {
            let collections = &mut scope.collections;
            collections.retain(|collection| self.sees_collection(&scope.name, &collection.name));
            self.sees_scope(&scope.name)
        });
        visible
    }
}
