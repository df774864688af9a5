//! The revisions of the cluster map that a client knows.

use kedge_cluster::Revision;

/// The newest revisions of the selected bucket's cluster map that a client was sent or told of.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientMap {
    /// The newest map that it was sent.
    sent: Option<Revision>,
    /// The newest revision that it was told of, with or without the map.
    announced: Option<Revision>,
}

impl ClientMap {
    /// Records that the client was sent the map.
    pub(crate) fn note_sent(&mut self, revision: Revision) {
        self.sent = Some(revision);
        self.announced = Some(revision);
    }

    /// Records that the client was told of the revision only.
    pub(crate) fn note_announced(&mut self, revision: Revision) {
        self.announced = Some(revision);
    }

    /// Returns true if the client was sent this map, or a newer one.
    pub(crate) fn has(&self, revision: Revision) -> bool {
        self.sent.is_some_and(|sent| sent >= revision)
    }

    /// Returns true if the client was told of this revision, or of a newer one.
    pub(crate) fn knows_of(&self, revision: Revision) -> bool {
        self.announced
            .is_some_and(|announced| announced >= revision)
    }
}
