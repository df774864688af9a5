//! Application of a collection manifest to a vBucket.

use crate::checkpoint::Change;
use crate::collections::collection_of;
use crate::system_event::{SystemEvent, SystemEventKind};
use crate::vbucket::VBucket;
use kedge_types::{Manifest, Now, Seqno};

impl VBucket {
    /// Applies `manifest`, unless a newer one was applied: queues events for created, modified and dropped collections
    /// and scopes. Only an active vBucket does so. SyncWrites in a dropped collection fail with `UnknownCollection`,
    /// and their prepares are aborted in order.
    pub fn follow_manifest(&mut self, now: Now, manifest: &Manifest) {
        if !self.store.is_active() || manifest.uid < self.store.collections.uid() {
            return;
        }
        for event in self.store.collections.differences(manifest) {
            let history = &mut self.store.history;
            let cas = history.clock.next(now.unix_ns);
            let item = event.item(cas, history.next_seqno());
            history.make_all_visible();
            let replaced = apply_event(self, &event, item.seqno());
            self.store.changes.push_over(Change::System(item), replaced);
        }
        self.store.collections.uid = manifest.uid;
        self.durability.commit_ready(&mut self.store);
    }
}

/// Applies an event. Returns the seqno of the event that it replaces.
fn apply_event(vb: &mut VBucket, event: &SystemEvent, seqno: Seqno) -> Seqno {
    let store = &mut vb.store;
    let is_drop = event.kind == SystemEventKind::CollectionDropped;
    let items = store.collections.items_of(event.collection);
    let replaced = store.collections.apply(event, seqno);
    if is_drop {
        store.documents.dropped.add(items);
    }
    if is_drop && store.is_active() {
        let unix_secs = store.history.clock.last().get() / 1_000_000_000;
        vb.durability
            .abort_matching(unix_secs, |key| collection_of(key) == event.collection);
    }
    replaced
}

/// Applies an event from the log or from another node. Returns the seqno of the event that it replaces.
pub(crate) fn receive_event(vb: &mut VBucket, event: &SystemEvent, seqno: Seqno) -> Seqno {
    vb.store.history.see(seqno);
    apply_event(vb, event, seqno)
}
