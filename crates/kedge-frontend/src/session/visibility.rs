//! Which scopes and collections the user of a connection may know of: those in which it may do something.

use kedge_types::Manifest;

use super::{Rights, Session};

impl Session {
    /// Whether the user may do something in the whole bucket, beside seeing that it is there.
    pub(crate) fn knows_all(&self) -> bool {
        self.rights != Rights::ACCESS
    }

    /// Whether the user may do something in the scope or in a collection of it.
    pub(crate) fn knows_scope(&self, scope: &str) -> bool {
        self.knows_all() || self.parts.iter().any(|part| part.touches(scope))
    }

    /// Whether the user may do something in the collection.
    pub(crate) fn knows(&self, scope: &str, collection: &str) -> bool {
        let mut parts = self.parts.iter();
        self.knows_all() || parts.any(|part| part.covers(scope, Some(collection)))
    }

    /// Whether the user may do that with the documents of the collection.
    pub(crate) fn may_in(&self, scope: &str, collection: &str, needed: Rights) -> bool {
        let covering = self.parts.iter();
        let covering = covering.filter(|part| part.covers(scope, Some(collection)));
        let held = covering.fold(self.rights.0, |held, part| held.and(part.privileges()));
        Rights(held).allow(needed)
    }

    /// The part of the manifest that the user may know of.
    pub(crate) fn visible(&self, manifest: &Manifest) -> Manifest {
        let mut visible = manifest.clone();
        if self.knows_all() {
            return visible;
        }
        visible.scopes.retain_mut(|scope| {
            let collections = &mut scope.collections;
            collections.retain(|collection| self.knows(&scope.name, &collection.name));
            self.knows_scope(&scope.name)
        });
        visible
    }
}
