//! The users of the cluster, in the coordination store.
//!
//! Invariants:
//! * Every change of a valid document compares the revision of the store in which the common document was changed last, and
//!   changes that one, too.
//! * The newest users win: a node follows newer ones of the store, and a member puts newer ones that it follows back there
//!   after the store went backwards.
//! * The users in the store have nothing that needs a higher compatibility level than the one in force.
//! * Only a member puts users into a store that has none. The store has the map of its cluster: see [`super::store_link`].

mod stored;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kedge_auth::{UserStore, UsersRevision};
use kedge_coordination::CoordinationError;
use kedge_node::coordination::ChangeError;
use kedge_node::users::{EditUsers, SharedUsers, Users, UsersError};
use kedge_sync::{RankedMutex, ranks::ClusterUsersChanging};

use self::stored::{StoredUsers, transactions};
use super::begin::new_uuid;
use super::followed::Followed;
use super::peers::Peers;
use super::store::{Store, StoreError};

/// The number of times that a change is tried, as other changes come first.
const ATTEMPTS: usize = 20;
/// The longest wait of the maker of a change for the other nodes that answer.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(3);

/// The consequence of the users in the store for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
enum UsersAction {
    /// None.
    Nothing,
    /// The node follows them.
    Follow,
    /// The node puts its own users there, in this revision.
    Put(u64),
    /// They cannot be the users of this cluster; the text gives the reason.
    Refuse(String),
}

/// The cluster of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeCluster<'c> {
    /// The one whose map it follows as a member.
    MemberOf(&'c str),
    /// The one whose map it followed last; `None` if it never did.
    Last(Option<&'c str>),
}

/// Returns the consequence of the users in the store for a node with these ones. `of_map` is the cluster whose map is in the
/// store, and `is_same` says whether both are the same but for their revisions.
fn act_on(
    cluster: NodeCluster<'_>,
    of_map: Option<&str>,
    own: Option<&UsersRevision>,
    stored: Option<&UsersRevision>,
    is_same: bool,
) -> UsersAction {
    let (known, is_member) = match cluster {
        NodeCluster::MemberOf(cluster) => (Some(cluster), true),
        NodeCluster::Last(cluster) => (cluster, false),
    };
    let refused = |why: String| UsersAction::Refuse(format!("the coordination store has {why}"));
    let known = match (known, of_map) {
        (None, None) => return UsersAction::Nothing,
        (Some(_), None) => return refused("no map".to_owned()),
        (Some(known), Some(other)) if known != other => {
            return refused(format!("the map of another cluster, {other}"));
        }
        (_, Some(cluster)) => cluster,
    };
    let Some(stored) = stored else {
        let own = own.filter(|own| own.cluster == known);
        return match is_member {
            true => UsersAction::Put(own.map_or(1, |own| own.revision)),
            false => UsersAction::Nothing,
        };
    };
    if known != stored.cluster {
        return refused(format!("the users of another cluster, {}", stored.cluster));
    }
    match own.filter(|own| own.cluster == known) {
        None => UsersAction::Follow,
        Some(own) if own.revision < stored.revision => UsersAction::Follow,
        Some(own) if own.revision == stored.revision && is_same => UsersAction::Nothing,
        Some(_) if !is_member => UsersAction::Nothing,
        // Made from older ones after these were restored.
        Some(own) if own.revision == stored.revision => UsersAction::Put(own.revision + 1),
        Some(own) => UsersAction::Put(own.revision),
    }
}

/// Returns whether two stores have the same users, whatever their revisions.
fn are_same(one: &UserStore, other: &UserStore) -> bool {
    let as_other = |shared: &UsersRevision| one.clone().into_shared(shared.clone());
    let as_other = other.shared().map(as_other);
    as_other.is_some_and(|one| one.to_documents() == other.to_documents())
}

/// The users of the store, as a base of changes.
struct BaseUsers {
    stored: StoredUsers,
    users: UserStore,
}

/// The users that the nodes of a cluster share.
pub(super) struct ClusterUsers {
    store: Arc<Store>,
    /// The uuid of the cluster of which the node was a member before this start.
    saved_cluster: Option<String>,
    /// The map that the node follows and the other nodes, once it runs.
    node: OnceLock<(Arc<Followed>, Arc<Peers>)>,
    /// Locked during a change.
    changing: RankedMutex<ClusterUsersChanging, ()>,
}

impl std::fmt::Debug for ClusterUsers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterUsers").finish_non_exhaustive()
    }
}

impl ClusterUsers {
    /// Creates the users of a node that was a member of that cluster before.
    pub(super) fn new(store: Arc<Store>, saved_cluster: Option<String>) -> Self {
        Self {
            store,
            saved_cluster,
            node: OnceLock::new(),
            changing: RankedMutex::default(),
        }
    }

    /// Sets the map that the node follows and the other nodes: it runs from now on.
    pub(super) fn belong_to(&self, followed: Arc<Followed>, peers: Arc<Peers>) {
        self.node.get_or_init(|| (followed, peers));
    }

    /// Follows the users of the store at a start, as far as it can be reached.
    pub(super) fn begin(&self, users: &Users) {
        if self.store.status().trouble.is_some() {
            return;
        }
        let last = NodeCluster::Last(self.saved_cluster.as_deref());
        if let Err(error) = self.follow_stored(users, last) {
            tracing::warn!(%error, "the node starts with its copy of the cluster's users");
        }
    }

    /// Follows the users of the store if they are those of this cluster, or puts the newer ones of a member back there.
    pub(super) fn follow(&self, users: &Users) -> Result<(), UsersError> {
        let followed = self.node.get().map(|(followed, _)| followed);
        let Some(followed) = followed.filter(|it| it.map_refusal().is_empty()) else {
            return Ok(());
        };
        let map = followed.map();
        let cluster = map.as_ref().map(|map| map.cluster_uuid.as_str());
        let member = map.as_ref().and_then(|map| followed.number(map));
        let cluster = match cluster.filter(|_| member.is_some()) {
            Some(cluster) => NodeCluster::MemberOf(cluster),
            None => NodeCluster::Last(cluster),
        };
        self.follow_stored(users, cluster).map(drop)
    }

    /// Does what [`Self::follow`] does for a node of this cluster, and returns the users of the store; `None` if it has none.
    fn follow_stored(
        &self,
        users: &Users,
        cluster: NodeCluster<'_>,
    ) -> Result<Option<BaseUsers>, UsersError> {
        for _ in 0..ATTEMPTS {
            let snapshot = self.store.read_all().map_err(StoreError::from);
            let stored = snapshot.and_then(StoredUsers::read);
            let stored = stored.map_err(ChangeError::from)?;
            let own = users.read();
            let of_store = own.with_documents(&stored.documents).map_err(|why| {
                ChangeError::Store(format!(
                    "the users of the coordination store cannot be used: {why}"
                ))
            })?;
            let is_same = of_store.as_ref().is_some_and(|it| are_same(&own, it));
            let shared = of_store.as_ref().and_then(UserStore::shared);
            match act_on(cluster, stored.cluster(), own.shared(), shared, is_same) {
                UsersAction::Nothing => {}
                UsersAction::Follow => {
                    if let Some(of_store) = &of_store {
                        follow_newer(users, &own, of_store)?;
                    }
                }
                UsersAction::Put(revision) => {
                    if let NodeCluster::MemberOf(cluster) = cluster {
                        self.put_back(users, &stored, (cluster, revision))?;
                    }
                    continue;
                }
                UsersAction::Refuse(why) => return Err(ChangeError::Store(why).into()),
            }
            return Ok(of_store.map(|users| BaseUsers { stored, users }));
        }
        Err(ChangeError::Raced.into())
    }

    /// Puts the users of this node into the store, unless another change comes first.
    fn put_back(
        &self,
        users: &Users,
        stored: &StoredUsers,
        (cluster, revision): (&str, u64),
    ) -> Result<(), UsersError> {
        let own = users.read();
        let shared = own.shared().filter(|own| own.cluster == cluster);
        if shared.is_some() {
            tracing::error!(
                revision,
                "the coordination store went backwards: the followed users are put there again"
            );
        } else {
            tracing::info!("the users of this node become those of the cluster");
        }
        let generation = shared.map_or_else(new_uuid, |own| own.generation.clone());
        let next = UserStore::clone(&own).into_shared(UsersRevision {
            cluster: cluster.to_owned(),
            generation,
            revision,
        });
        stored.check_level(&next).map_err(ChangeError::from)?;
        match self.put(stored, &next) {
            Ok(put) => users.follow(next.into_shared(put)).map(drop),
            Err(CoordinationError::Conflict(_) | CoordinationError::OutcomeUnknown(_)) => Ok(()),
            Err(error) => Err(ChangeError::from(StoreError::from(error)).into()),
        }
    }

    /// Puts users in place of those that were read, if these are unchanged. Too many changes for one transaction are put
    /// as another generation. Returns the revision of the users as they are there now.
    fn put(
        &self,
        stored: &StoredUsers,
        next: &UserStore,
    ) -> Result<UsersRevision, CoordinationError> {
        let shared = next.shared().cloned();
        let shared = shared.ok_or_else(|| {
            CoordinationError::Invalid("they are the users of no cluster".to_owned())
        })?;
        let documents = next.to_documents();
        let changes = transactions(&stored.changes(&documents));
        if changes.len() <= 1 {
            let changes = changes.into_iter().next().unwrap_or_default();
            let replace = stored.replace_common(&documents);
            self.store.transact(&replace.and(changes))?;
            return Ok(shared);
        }
        let shared = UsersRevision {
            generation: new_uuid(),
            ..shared
        };
        let documents = next.clone().into_shared(shared.clone()).to_documents();
        let changes = stored.changes(&documents).into_iter();
        let (new, old): (Vec<_>, Vec<_>) = changes.partition(|(_, content)| content.is_some());
        // Valid once the common document names them.
        for put in transactions(&new) {
            self.store.transact(&put)?;
        }
        self.store.transact(&stored.replace_common(&documents))?;
        // Only those that were read: a generation that another node writes meanwhile is based on this one.
        for delete in transactions(&old) {
            if let Err(error) = self.store.transact(&delete) {
                tracing::warn!(%error, "documents of former users stay in the coordination store until the next change");
                break;
            }
        }
        Ok(shared)
    }

    /// Returns the cluster of which this node is a member.
    fn cluster(&self) -> Result<String, ChangeError> {
        let Some((followed, _)) = self.node.get() else {
            return self.saved_cluster.clone().ok_or(ChangeError::NotBegun);
        };
        let map = followed.map().ok_or(ChangeError::NotBegun)?;
        followed.member(&map)?;
        let refusal = followed.map_refusal();
        match refusal.is_empty() {
            true => Ok(map.cluster_uuid.clone()),
            false => Err(ChangeError::Store(refusal)),
        }
    }

    /// Returns the name of another node that follows newer users.
    fn newer_node(&self, revision: u64) -> Option<String> {
        let (_, peers) = self.node.get()?;
        let peers = peers.all();
        let newer = peers.iter().find(|peer| {
            let status = peer.status.lock();
            let about = status.about.as_ref();
            about.is_some_and(|(about, _)| about.users > revision)
        });
        newer.map(|peer| peer.name.clone())
    }

    /// Checks that no node follows newer users than those of the store, which went backwards in that case.
    fn check_newest(&self, revision: u64) -> Result<(), ChangeError> {
        let newer = self.newer_node(revision);
        newer.map_or(Ok(()), |node| Err(ChangeError::WentBackwards(node)))
    }

    /// Returns whether another node follows newer users. This one has missed a change if the store went backwards, and forward
    /// again before the node looked.
    pub(super) fn are_behind(&self, users: &Users) -> bool {
        let users = users.read();
        let own = users.shared();
        own.is_some_and(|own| self.newer_node(own.revision).is_some())
    }

    /// Waits until the other nodes that answer follow the users.
    fn await_others(&self, revision: u64) {
        let Some((followed, peers)) = self.node.get() else {
            return;
        };
        let Some(map) = followed.map() else {
            return;
        };
        peers.each(&map, |peer| {
            if !peer.is_up() {
                return;
            }
            match peer.await_users(revision, FOLLOW_TIMEOUT) {
                Ok(about) if about.users >= revision => {}
                Ok(_) => tracing::warn!(
                    node = peer.name,
                    "a node does not follow the changed users yet"
                ),
                Err(error) => tracing::warn!(
                    node = peer.name, %error,
                    "a node does not report that it follows the changed users"
                ),
            }
        });
    }
}

/// Follows the users of the store, which are newer.
fn follow_newer(users: &Users, own: &UserStore, of_store: &UserStore) -> Result<(), UsersError> {
    let mut people = own
        .list()
        .filter(|user| !kedge_auth::is_reserved(user.id()));
    if own.shared().is_none() && people.next().is_some() {
        tracing::warn!("the users of the cluster replace those of this node");
    }
    if users.follow(of_store.clone())? {
        let revision = of_store.shared().map(|shared| shared.revision);
        tracing::info!(revision, "the users of the cluster are followed");
    }
    Ok(())
}

impl SharedUsers for ClusterUsers {
    fn change(&self, users: &Users, edit: &mut EditUsers<'_>) -> Result<(), UsersError> {
        let _one_at_a_time = self.changing.lock();
        // The users of a transaction whose result is not known.
        let mut sent: Option<UserStore> = None;
        for _ in 0..ATTEMPTS {
            let cluster = self.cluster()?;
            let base = self.follow_stored(users, NodeCluster::MemberOf(&cluster))?;
            let Some(BaseUsers {
                stored,
                users: base,
            }) = base
            else {
                return Err(ChangeError::NotBegun.into());
            };
            let shared = base.shared().cloned().ok_or(ChangeError::NotBegun)?;
            if sent.take().is_some_and(|sent| are_same(&sent, &base)) {
                self.await_others(shared.revision);
                return Ok(());
            }
            self.check_newest(shared.revision)?;
            let revision = shared.revision + 1;
            let mut next = base.into_shared(UsersRevision { revision, ..shared });
            edit(&mut next)?;
            stored.check_level(&next).map_err(ChangeError::from)?;
            match self.put(&stored, &next) {
                Ok(put) => {
                    if let Err(error) = users.follow(next.into_shared(put)) {
                        // The store has it. The thread "kedge-store" tries again.
                        tracing::error!(%error, "this node does not follow users that it changed");
                    }
                    self.await_others(revision);
                    return Ok(());
                }
                Err(CoordinationError::Conflict(_)) => {}
                Err(CoordinationError::OutcomeUnknown(_)) => sent = Some(next),
                Err(error) => return Err(ChangeError::from(StoreError::from(error)).into()),
            }
        }
        Err(ChangeError::Raced.into())
    }
}
