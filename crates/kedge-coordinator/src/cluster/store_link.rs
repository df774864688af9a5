//! The thread "kedge-store": follows the map and the users in the coordination store.
//!
//! [`StoreLink`] decides which call comes next, and [`act_on`] what a map in the store means for the node; neither of them
//! makes a call.
//!
//! Invariants:
//! * A newer map of the store is adopted, whoever made it.
//! * The map of the store is replaced by an older one only if it went backwards: then the newest map that any node follows
//!   is put there again.

use std::sync::Weak;
use std::time::Duration;

use kedge_cluster::{ClusterError, ClusterMap, plan_node_change};
use kedge_coordination::{CoordinationError, ReadAgain, Revision, Transaction, Watch, WatchEvent};
use kedge_node::coordination::ChangeError;
use kedge_node::users::UsersError;

use super::ClusterNode;
use super::store::{PutMap, StoreError, StoredMap, has_users, map_of};

/// The longest wait for a change. The thread notices after it that the server stops.
const WATCH_WAIT: Duration = Duration::from_millis(500);
/// The pauses after failed calls: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreCall {
    /// Everything is read.
    Read,
    /// A watch begins.
    Watch { after: Revision },
    /// The next event of the watch is awaited.
    Next,
}

/// The order of the calls.
#[derive(Debug)]
struct StoreLink {
    next: StoreCall,
    pause: Duration,
}

impl StoreLink {
    const fn new() -> Self {
        Self {
            next: StoreCall::Read,
            pause: PAUSES.0,
        }
    }

    /// Everything was read at that revision.
    fn was_read(&mut self, revision: Revision) {
        self.next = StoreCall::Watch { after: revision };
    }

    /// The watch has begun.
    fn has_begun(&mut self) {
        self.next = StoreCall::Next;
    }

    /// The watch has returned changes, or none in time.
    fn was_told(&mut self) {
        self.pause = PAUSES.0;
    }

    /// Everything has to be read again.
    fn has_ended(&mut self) {
        self.next = StoreCall::Read;
    }

    /// A call failed. Returns the pause before the next one. A watch that cannot reach the store may be continued, and has
    /// waited already.
    fn failed(&mut self, error: &CoordinationError) -> Duration {
        let goes_on = matches!(
            error,
            CoordinationError::Unreachable(_) | CoordinationError::NoPermission(_)
        );
        if self.next == StoreCall::Next && goes_on {
            return PAUSES.0;
        }
        self.next = StoreCall::Read;
        let pause = self.pause;
        self.pause = (pause * 2).min(PAUSES.1);
        pause
    }
}

/// The consequence of a map in the store for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MapAction {
    /// None: the node follows it, or is no member and has no map.
    Nothing,
    /// The node adopts it.
    Adopt,
    /// The store went backwards: the node puts this map in place of it.
    PutBack(Box<ClusterMap>),
    /// It cannot be the map of this cluster; the text gives the reason.
    Refuse(String),
}

/// Returns the consequence of a map in the store for the node with that uuid.
fn act_on(uuid: &str, followed: Option<&ClusterMap>, stored: Option<&ClusterMap>) -> MapAction {
    let (followed, stored) = match (followed, stored) {
        (None, None) => return MapAction::Nothing,
        (None, Some(stored)) => {
            let is_member = stored.nodes.values().any(|node| node.uuid == uuid);
            return if is_member {
                MapAction::Adopt
            } else {
                MapAction::Nothing
            };
        }
        // It may be another store: a node that put its map there would be a cluster of its own.
        (Some(_), None) => return MapAction::Refuse("the store has no map".to_owned()),
        (Some(followed), Some(stored)) => (followed, stored),
    };
    if followed.cluster_uuid != stored.cluster_uuid {
        return MapAction::Refuse(format!(
            "the store has the map of another cluster, {}",
            stored.cluster_uuid
        ));
    }
    if stored.revision > followed.revision {
        return MapAction::Adopt;
    }
    if stored == followed {
        return MapAction::Nothing;
    }
    let mut map = followed.clone();
    if stored.revision == followed.revision {
        // Made from an older map after that was restored.
        map.revision.rev += 1;
    }
    MapAction::PutBack(Box::new(map))
}

/// The reason why a call has to be repeated.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Change(#[from] ChangeError),
    #[error(transparent)]
    Users(#[from] UsersError),
}

impl From<CoordinationError> for StepError {
    fn from(error: CoordinationError) -> Self {
        Self::Store(error.into())
    }
}

impl From<ClusterError> for StepError {
    fn from(error: ClusterError) -> Self {
        Self::Store(error.into())
    }
}

/// Follows the store until the server ends.
pub(super) fn run(node: &Weak<ClusterNode>) {
    let mut link = StoreLink::new();
    let mut watch = None;
    while let Some(node) = ClusterNode::alive(node) {
        let Err(error) = node.step(&mut link, &mut watch) else {
            continue;
        };
        let pause = match error {
            StepError::Store(StoreError::Store(error)) => link.failed(&error),
            StepError::Store(StoreError::Content(error)) => {
                node.followed.refuse_map(error.to_string());
                link.has_ended();
                PAUSES.1
            }
            StepError::Users(error) => {
                tracing::warn!(%error, "the users of the coordination store are not followed yet");
                link.has_ended();
                PAUSES.1
            }
            StepError::Change(error) => {
                tracing::warn!(%error, "this node's address in the map is not up to date yet");
                link.has_ended();
                PAUSES.1
            }
        };
        drop(node);
        std::thread::sleep(pause);
    }
}

impl ClusterNode {
    /// Makes the next call.
    fn step(
        &self,
        link: &mut StoreLink,
        watch: &mut Option<Box<dyn Watch>>,
    ) -> Result<(), StepError> {
        match link.next {
            StoreCall::Read => {
                let state = self.store.read(self.name())?;
                if state.record.as_ref() != Some(&self.followed.record()) {
                    self.store
                        .put_record(self.name(), &self.followed.record(), &state)?;
                }
                self.follow_stored(state.map.as_ref())?;
                self.update_entry()?;
                self.shared_users.follow(&self.users)?;
                link.was_read(state.revision);
            }
            StoreCall::Watch { after } => {
                *watch = Some(self.store.watch(after)?);
                link.has_begun();
            }
            StoreCall::Next => {
                let Some(open) = watch else {
                    link.has_ended();
                    return Ok(());
                };
                match self.store.next(&mut **open, WATCH_WAIT)? {
                    None => link.was_told(),
                    Some(WatchEvent::Changes { changes, .. }) => {
                        link.was_told();
                        // A push may have been faster than the watch. Only what is read shows that the store went back.
                        if let Some(Some(stored)) = map_of(&changes)?
                            && (self.followed.revision() < Some(stored.map.revision)
                                || !self.followed.map_refusal().is_empty())
                        {
                            self.follow_stored(Some(&stored))?;
                            self.update_entry()?;
                        }
                        if has_users(&changes) {
                            self.shared_users.follow(&self.users)?;
                        }
                    }
                    Some(WatchEvent::ReadAgain(why)) => {
                        if why == ReadAgain::WentBackwards {
                            self.store.has_gone_backwards();
                        }
                        *watch = None;
                        link.has_ended();
                    }
                }
            }
        }
        Ok(())
    }

    /// Changes this node's entry in the map if the node has another address now.
    fn update_entry(&self) -> Result<(), ChangeError> {
        let Some(map) = self
            .followed
            .map()
            .filter(|map| self.followed.number(map).is_some())
        else {
            return Ok(());
        };
        if plan_node_change(&map, &self.followed.entry)?.is_some() {
            self.amend(|map, _| plan_node_change(map, &self.followed.entry).ok().flatten())?;
        }
        Ok(())
    }

    /// Returns whether this node has another address than the map says, so that others do not reach it.
    pub(super) fn is_entry_due(&self, map: &ClusterMap) -> bool {
        let is_member = self.followed.number(map).is_some();
        is_member && matches!(plan_node_change(map, &self.followed.entry), Ok(Some(_)))
    }

    /// Adopts the map of the store, or puts the followed one back there.
    fn follow_stored(&self, stored: Option<&StoredMap>) -> Result<(), StoreError> {
        let followed = self.followed.map();
        match act_on(
            self.followed.uuid(),
            followed.as_deref(),
            stored.map(|it| &it.map),
        ) {
            MapAction::Nothing => {}
            MapAction::Adopt => {
                if let Some(stored) = stored {
                    self.adopt(stored.map.clone())?;
                }
            }
            MapAction::PutBack(map) => {
                let based_on = stored.map(|it| it.revision);
                let done = self.store.put_map(based_on, &map, &Transaction::new())?;
                tracing::error!(
                    rev = map.revision.rev,
                    is_done = matches!(done, PutMap::Done),
                    "the coordination store went backwards: the followed map is put there again"
                );
                match done {
                    PutMap::Done => drop(self.adopt(*map)?),
                    PutMap::Conflict(_) | PutMap::Unknown => {
                        let why = "another node changes the map at the same time".to_owned();
                        return Err(CoordinationError::Unreachable(why).into());
                    }
                }
            }
            MapAction::Refuse(why) => {
                self.followed.refuse_map(why);
                return Ok(());
            }
        }
        self.followed.refuse_map(String::new());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::map;
    use super::*;

    #[test]
    fn stored_map_is_adopted_or_replaced_by_a_newer_followed_one() {
        let old = map(&["a", "b"]);
        let uuid = old.nodes[&0].uuid.as_str();
        let mut new = old.clone();
        new.revision.rev += 1;
        let mut same = new.clone();
        same.cluster_name = "made after a restore".to_owned();
        let mut other = new.clone();
        other.cluster_uuid = "0".repeat(32);
        let mut next = new.clone();
        next.revision.rev += 1;
        let put = |map: &ClusterMap| MapAction::PutBack(Box::new(map.clone()));
        let table = [
            (uuid, None, None, MapAction::Nothing),
            (uuid, None, Some(&old), MapAction::Adopt),
            ("another", None, Some(&old), MapAction::Nothing),
            (uuid, Some(&old), Some(&old), MapAction::Nothing),
            (uuid, Some(&old), Some(&new), MapAction::Adopt),
            // It is told that it was removed.
            ("another", Some(&old), Some(&new), MapAction::Adopt),
            (uuid, Some(&new), Some(&old), put(&new)),
            (uuid, Some(&new), Some(&same), put(&next)),
        ];
        for (at, (uuid, followed, stored, expected)) in table.into_iter().enumerate() {
            assert_eq!(act_on(uuid, followed, stored), expected, "{at}");
        }
        for stored in [None, Some(&other)] {
            let action = act_on(uuid, Some(&new), stored);
            assert!(matches!(action, MapAction::Refuse(_)), "{action:?}");
        }
    }

    #[test]
    fn calls_follow_each_other_and_pauses_grow() {
        let unreachable = CoordinationError::Unreachable("gone".to_owned());
        let damaged = CoordinationError::Damaged("torn".to_owned());
        let mut link = StoreLink::new();
        assert_eq!(link.failed(&unreachable), PAUSES.0);
        assert_eq!(link.failed(&unreachable), PAUSES.0 * 2);
        assert_eq!(link.next, StoreCall::Read);
        for _ in 0..10 {
            assert!(link.failed(&damaged) <= PAUSES.1);
        }
        link.was_read(Revision(7));
        assert_eq!(link.next, StoreCall::Watch { after: Revision(7) });
        link.has_begun();
        // The watch goes on by itself.
        link.failed(&unreachable);
        assert_eq!(link.next, StoreCall::Next);
        link.was_told();
        assert_eq!(link.failed(&damaged), PAUSES.0);
        assert_eq!(link.next, StoreCall::Read);
    }
}
