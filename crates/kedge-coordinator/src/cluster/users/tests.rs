use std::collections::BTreeSet;

use kedge_auth::{
    AuditSettings, CustomRole, GroupChange, JwtSettings, Privileges, RoleExtent, Roles, UserChange,
    UserDocuments,
};
use kedge_cluster::{ClusterError, CompatLevel, Feature};
use kedge_coordination::{StoreAddress, Transaction};

use super::stored::StoredUsers;
use super::*;
use crate::cluster::begin::stamped;

fn revision(cluster: &str, revision: u64) -> UsersRevision {
    UsersRevision {
        cluster: cluster.to_owned(),
        generation: "1".to_owned(),
        revision,
    }
}

#[test]
fn newest_users_of_the_cluster_win() {
    let (member, last) = (NodeCluster::MemberOf("a"), NodeCluster::Last(Some("a")));
    let never = NodeCluster::Last(None);
    let (one, two) = (revision("a", 1), revision("a", 2));
    let other = revision("b", 7);
    type Row<'r> = (
        NodeCluster<'r>,
        Option<&'r UsersRevision>,
        Option<&'r UsersRevision>,
        bool,
        UsersAction,
    );
    let table: [Row<'_>; 16] = [
        (member, None, None, false, UsersAction::Put(1)),
        (member, Some(&two), None, false, UsersAction::Put(2)),
        (member, Some(&other), None, false, UsersAction::Put(1)),
        (last, Some(&two), None, false, UsersAction::Nothing),
        (never, None, None, false, UsersAction::Nothing),
        (member, None, Some(&one), false, UsersAction::Follow),
        (never, None, Some(&one), false, UsersAction::Follow),
        (never, Some(&other), Some(&one), false, UsersAction::Follow),
        (last, Some(&one), Some(&two), false, UsersAction::Follow),
        (member, Some(&one), Some(&two), false, UsersAction::Follow),
        (member, Some(&two), Some(&two), true, UsersAction::Nothing),
        (member, Some(&two), Some(&two), false, UsersAction::Put(3)),
        (last, Some(&two), Some(&two), false, UsersAction::Nothing),
        (member, Some(&two), Some(&one), false, UsersAction::Put(2)),
        (last, Some(&two), Some(&one), false, UsersAction::Nothing),
        (never, Some(&two), Some(&one), false, UsersAction::Nothing),
    ];
    for (at, (cluster, own, stored, is_same, expected)) in table.into_iter().enumerate() {
        let action = act_on(cluster, Some("a"), own, stored, is_same);
        assert_eq!(action, expected, "{at}");
    }
    // It may be another store.
    for (of_map, stored) in [
        (Some("a"), Some(&other)),
        (Some("b"), None),
        (Some("b"), Some(&other)),
        (None, None),
        (None, Some(&one)),
    ] {
        for cluster in [member, last] {
            let action = act_on(cluster, of_map, Some(&two), stored, false);
            assert!(matches!(action, UsersAction::Refuse(_)), "{action:?}");
        }
    }
    let action = act_on(never, None, None, Some(&one), false);
    assert_eq!(action, UsersAction::Nothing);
}

/// Puts a map of this compatibility level into the store, unless it has one.
fn put_map(store: &Store, level: CompatLevel) {
    let mut map = super::super::testing::map(&["n_0", "n_1"]);
    map.level = level;
    let put = store.put_map(None, &stamped(map), &Transaction::new());
    put.expect("the store answers");
}

/// A node that is a member, with its copy of the users. It has no other nodes.
struct Node {
    cluster: String,
    users: Users,
    shared: Arc<ClusterUsers>,
}

impl Node {
    /// Starts a node with the store in a directory, and an administrator of its own.
    fn start(dir: &std::path::Path) -> Self {
        let mut own = UserStore::new().expect("randomness");
        own.add("root", "secret", Roles::admin(), 1).expect("added");
        own.add("kedge.cluster", "secret", Roles::admin(), 1)
            .expect("added");
        let users = Users::new(own, Box::new(|_| Ok(())));
        let store = Arc::new(Store::new(StoreAddress::from(dir), None));
        // The first one counts.
        put_map(&store, CompatLevel::HIGHEST);
        let map = store.read_map().expect("readable").expect("it exists");
        let cluster = map.map.cluster_uuid;
        let shared = Arc::new(ClusterUsers::new(store, Some(cluster.clone())));
        shared.begin(&users);
        users.share(shared.clone());
        Self {
            cluster,
            users,
            shared,
        }
    }

    fn follow(&self) {
        let member = NodeCluster::MemberOf(&self.cluster);
        let followed = self.shared.follow_stored(&self.users, member);
        followed.expect("followed");
    }

    fn add(&self, user: &str) {
        let add = |store: &mut UserStore| store.add(user, "secret", "ro_admin".parse()?, 2);
        self.users.change(add).expect("added");
    }

    fn ids(&self) -> BTreeSet<String> {
        let users = self.users.read();
        users.list().map(|user| user.id().to_owned()).collect()
    }

    fn stored(&self) -> StoredUsers {
        let snapshot = self.shared.store.read_all().expect("readable");
        StoredUsers::read(snapshot).expect("readable")
    }

    /// Makes the documents of the store others, as if another cluster node had done that.
    fn replace(&self, next: &UserDocuments) {
        let stored = self.stored();
        for put in transactions(&stored.changes(next)) {
            self.shared.store.transact(&put).expect("done");
        }
        let common = stored.replace_common(next);
        self.shared.store.transact(&common).expect("done");
    }
}

/// A node of the release before would not follow the users any more.
#[test]
fn users_of_an_older_level_get_nothing_that_older_nodes_cannot_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Arc::new(Store::new(StoreAddress::from(dir.path()), None));
    put_map(&store, CompatLevel::FIRST);
    let node = Node::start(dir.path());
    node.add("ada");
    let settings = AuditSettings {
        enabled: true,
        rotate_interval_s: 900,
        rotate_bytes: 1 << 20,
        prune_age_s: 0,
        disabled: BTreeSet::new(),
        disabled_users: BTreeSet::new(),
    };
    type Edit<'e> = &'e dyn Fn(&mut UserStore) -> Result<(), kedge_auth::AuthError>;
    let edits: [(Feature, Edit<'_>); 4] = [
        (Feature::ExternalUsers, &|store| {
            store.set_external_user("eve", &UserChange::default(), Privileges::ALL)
        }),
        (Feature::ExternalUsers, &|store| {
            store.set_jwt(Some(JwtSettings::default()))
        }),
        (Feature::DefinedRoles, &|store| {
            let role = CustomRole::new("orders", "", RoleExtent::Bucket, ["insert"])?;
            store.set_custom_role(role, Privileges::ALL)
        }),
        (Feature::AuditSettings, &|store| {
            store.set_audit_settings(settings.clone());
            Ok(())
        }),
    ];
    for (needed, edit) in edits {
        let before = node.stored().documents;
        let refused = node.users.change(edit);
        let is_refused = matches!(
            &refused,
            Err(UsersError::Cluster(ChangeError::Map(ClusterError::NeedsLevel { feature, .. })))
                if *feature == needed
        );
        assert!(is_refused, "{needed}: {refused:?}");
        assert_eq!(node.stored().documents, before);
    }
    node.add("bob");
    let newer = tempfile::tempdir().expect("a directory");
    let newer = Node::start(newer.path());
    newer.add("ada");
    for (needed, edit) in edits {
        let changed = newer.users.change(edit);
        assert!(changed.is_ok(), "{needed}: {changed:?}");
    }
}

fn ids(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn changes_of_two_nodes_are_followed_by_both() {
    let dir = tempfile::tempdir().expect("a directory");
    let one = Node::start(dir.path());
    one.add("ada");
    let two = Node::start(dir.path());
    assert_eq!(two.ids(), ids(&["ada", "kedge.cluster", "root"]));
    // On the users of the store, whatever the node follows.
    two.add("bob");
    one.add("eve");
    two.follow();
    assert_eq!(one.ids(), two.ids());
    assert_eq!(
        one.ids(),
        ids(&["ada", "bob", "eve", "kedge.cluster", "root"])
    );
    // The first change came after the first users.
    assert_eq!(*one.users.followed().borrow(), 4);
    one.users
        .change(|store| store.remove("ada"))
        .expect("removed");
    let removed = two.users.change(|store| store.remove("ada"));
    let unknown = kedge_auth::AuthError::UnknownUser("ada".to_owned());
    assert!(
        matches!(removed, Err(UsersError::Refused(ref why)) if *why == unknown),
        "{removed:?}"
    );
    // A refused change is none.
    let removed = two.users.change(|store| store.remove("root"));
    assert!(matches!(removed, Err(UsersError::LastAdmin)), "{removed:?}");
    one.follow();
    assert!(one.users.read().verify_password("root", b"secret"));
    let documents = one.stored().documents;
    assert!(!documents.keys().any(|name| name.contains("kedge.")));
}

#[test]
fn concurrent_changes_are_all_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let nodes: Vec<Node> = (0..2).map(|_| Node::start(dir.path())).collect();
    std::thread::scope(|scope| {
        for (n, node) in nodes.iter().enumerate() {
            scope.spawn(move || (0..5).for_each(|at| node.add(&format!("u{n}{at}"))));
        }
    });
    for node in &nodes {
        node.follow();
        assert_eq!(node.ids().len(), 12, "{:?}", node.ids());
    }
}

/// A user that was removed would have come back with a backup.
#[test]
fn restored_store_gets_the_newest_users_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two) = (Node::start(dir.path()), Node::start(dir.path()));
    one.add("ada");
    let backup = one.stored().documents;
    one.users
        .change(|store| store.remove("ada"))
        .expect("removed");
    one.add("bob");
    one.replace(&backup);
    // It has not followed the newest ones.
    two.follow();
    assert!(two.ids().contains("ada"));
    one.follow();
    two.follow();
    assert_eq!(two.ids(), ids(&["bob", "kedge.cluster", "root"]));
    // Another change was made after the restore, in the same revision: that of the node which notices it counts.
    two.add("eve");
    two.replace(&backup);
    let three = Node::start(dir.path());
    assert!(three.ids().contains("ada"));
    let revision = *two.users.followed().borrow();
    while *three.users.followed().borrow() < revision {
        three.add(&format!("u{}", three.ids().len()));
    }
    two.follow();
    three.follow();
    assert_eq!(three.ids(), ids(&["bob", "eve", "kedge.cluster", "root"]));
    assert_eq!(*three.users.followed().borrow(), revision + 1);
    // A store without users gets them, too.
    two.replace(&UserDocuments::new());
    let common = Transaction::new().delete("users/common");
    two.shared.store.transact(&common).expect("deleted");
    let waiting = Node::start(dir.path());
    assert_eq!(waiting.ids(), ids(&["kedge.cluster", "root"]));
    two.add("joe");
    waiting.follow();
    assert_eq!(waiting.ids(), two.ids());
    assert!(two.ids().contains("eve"));
}

/// A wrong address of the store would have made another cluster of its users.
#[test]
fn another_store_gets_no_users() {
    let (here, there) = (tempfile::tempdir(), tempfile::tempdir());
    let (here, there) = (here.expect("a directory"), there.expect("a directory"));
    let node = Node::start(here.path());
    node.add("ada");
    std::fs::rename(here.path(), there.path().join("away")).expect("moved away");
    std::fs::create_dir(here.path()).expect("an empty directory");
    let add = |store: &mut UserStore| store.add("bob", "secret", "ro_admin".parse()?, 2);
    let refused = node.users.change(add).expect_err("it is another store");
    assert!(
        refused.to_string().contains("coordination store"),
        "{refused}"
    );
    assert!(node.stored().documents.is_empty());
    let other = Node::start(here.path());
    other.add("eve");
    let refused = node.users.change(add).expect_err("it is another cluster");
    assert!(refused.to_string().contains("another cluster"), "{refused}");
    assert_eq!(other.ids(), ids(&["eve", "kedge.cluster", "root"]));
    assert_eq!(node.ids(), ids(&["ada", "kedge.cluster", "root"]));
}

#[test]
fn damaged_users_of_the_store_are_not_followed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (one, two) = (Node::start(dir.path()), Node::start(dir.path()));
    one.add("ada");
    two.follow();
    let good = one.stored().documents;
    let mut bad = good.clone();
    let ada = bad.iter_mut().find(|(name, _)| name.ends_with("/ada"));
    ada.expect("it is there").1.truncate(20);
    one.replace(&bad);
    let member = NodeCluster::MemberOf(&two.cluster);
    let refused = two.shared.follow_stored(&two.users, member).map(drop);
    let refused = refused.expect_err("they cannot be read").to_string();
    assert!(refused.contains("cannot be used"), "{refused}");
    let changed = two.users.change(|store| store.remove("ada"));
    let is_refused = matches!(changed, Err(UsersError::Cluster(ChangeError::Store(_))));
    assert!(is_refused, "{changed:?}");
    assert!(two.users.read().verify_password("ada", b"secret"));
    one.replace(&good);
    two.add("bob");
    one.follow();
    assert_eq!(one.ids(), ids(&["ada", "bob", "kedge.cluster", "root"]));
}

#[test]
fn change_of_more_documents_than_a_transaction_takes_is_made_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = Node::start(dir.path());
    let group = GroupChange::default();
    node.users
        .change(|store| store.set_group("readers", &group, Privileges::ALL))
        .expect("added");
    node.add("u0");
    // Hashing many passwords takes long.
    let mut many = node.stored().documents;
    let of_first = many.iter().find(|(name, _)| name.ends_with("/local/u0"));
    let (name, document) = of_first.expect("it is there");
    let (name, document) = (name.clone(), String::from_utf8(document.clone()));
    let document = document.expect("text");
    for n in 0..250 {
        let user = document
            .replace("\"u0\"", &format!("\"u{n}\""))
            .replace("\"groups\":[]", "\"groups\":[\"readers\"]");
        many.insert(name.replace("/u0", &format!("/u{n}")), user.into_bytes());
    }
    let revision = *node.users.followed().borrow() + 1;
    let common = String::from_utf8(many["common"].clone()).expect("text");
    let common = common.replace(
        &format!("\"revision\":{}", revision - 1),
        &format!("\"revision\":{revision}"),
    );
    many.insert("common".to_owned(), common.into_bytes());
    node.replace(&many);
    node.follow();
    assert_eq!(node.ids().len(), 252);
    let before = node.stored();
    let address = StoreAddress::from(dir.path()).open(None).expect("opened");
    let mut watch = address
        .watch(before.changed.expect("it exists"))
        .expect("a watch");
    node.users
        .change(|store| store.remove_group("readers", Privileges::ALL))
        .expect("removed");
    let mut changed = 0;
    let moment = Duration::from_millis(50);
    while let Some(kedge_coordination::WatchEvent::Changes { changes, .. }) =
        watch.next(moment).expect("readable")
    {
        changed += usize::from(super::super::store::has_users(&changes));
    }
    assert!(changed <= 1, "it is one change for others");
    let other = Node::start(dir.path());
    assert_eq!(other.ids(), node.ids());
    let users = other.users.read();
    assert!(users.list().all(|user| user.groups().len() == 0));
    assert_eq!(users.groups().len(), 0);
    // Nothing of the former generation stays.
    assert_eq!(node.stored().documents, users.to_documents());
    node.add("last");
    assert_eq!(node.ids().len(), 253);
}

#[test]
fn waiting_node_follows_users_and_changes_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let member = Node::start(dir.path());
    let mut waiting = Node::start(dir.path());
    let last = NodeCluster::Last(None);
    let read = |node: &Node| node.shared.follow_stored(&node.users, last).map(drop);
    read(&waiting).expect("read");
    assert!(member.stored().documents.is_empty());
    member.add("ada");
    read(&waiting).expect("read");
    assert_eq!(waiting.ids(), member.ids());
    let store = waiting.shared.store.clone();
    waiting.shared = Arc::new(ClusterUsers::new(store, None));
    waiting.users = Users::new(
        UserStore::clone(&waiting.users.read()),
        Box::new(|_| Ok(())),
    );
    waiting.users.share(waiting.shared.clone());
    let changed = waiting.users.change(|store| store.remove("ada"));
    let refused = matches!(changed, Err(UsersError::Cluster(ChangeError::NotBegun)));
    assert!(refused, "{changed:?}");
    assert_eq!(waiting.ids(), member.ids());
}
