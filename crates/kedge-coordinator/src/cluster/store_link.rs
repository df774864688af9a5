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

use kedge_cluster::{ClusterError, ClusterMap, MapAction, act_on, plan_node_change};
use kedge_coordination::{CoordinationError, ReadAgain, Revision, Transaction, Watch, WatchEvent};
use kedge_node::coordination::ChangeError;
use kedge_node::users::UsersError;

use super::ClusterNode;
use super::begin::stamped;
use super::followed::Followed;
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
                    None if self.shared_users.are_behind(&self.users) => link.has_ended(),
                    None => link.was_told(),
                    Some(WatchEvent::Changes { changes, .. }) => {
                        link.was_told();
                        if let Some(Some(stored)) = map_of(&changes)?
                            && is_news(&self.followed, &stored.map)
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
                let map = stamped(*map);
                let based_on = stored.map(|it| it.revision);
                let done = self.store.put_map(based_on, &map, &Transaction::new())?;
                tracing::error!(
                    rev = map.revision.rev,
                    is_done = matches!(done, PutMap::Done),
                    "the coordination store went backwards: the followed map is put there again"
                );
                match done {
                    PutMap::Done => drop(self.adopt(map)?),
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

/// Returns whether a map of the watch is to be acted on. A push may have been faster than the watch, so an older map is none:
/// only what is read shows that the store went back.
fn is_news(followed: &Followed, stored: &ClusterMap) -> bool {
    let is_news =
        |followed: &ClusterMap| followed.revision < stored.revision || !followed.continues(stored);
    let map = followed.map();
    map.is_none_or(|followed| is_news(&followed)) || !followed.map_refusal().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

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
