//! The users, read by every login and changed by few.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use kedge_auth::{AuditSettings, HashCost, PasswordPolicy, UserStore};
use kedge_disk::{Disk, DiskError, read_file, replace_file};
use kedge_executor::ScheduleError;
use kedge_sync::{RankedMutex, ranks::UsersSave};
use tokio::sync::watch;

use crate::audit::Audit;
use crate::coordination::ChangeError;
use crate::hash_upgrades::HashUpgrades;
use crate::pools::TaskPools;
use crate::state_files::{self, StateFileError};

/// Saves the users durably.
pub type SaveUsers =
    Box<dyn Fn(&UserStore) -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// The reason why users could not be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// The change was refused.
    #[error(transparent)]
    Refused(#[from] kedge_auth::AuthError),
    /// No user could manage the server afterwards.
    #[error("the last user with the role admin must stay")]
    LastAdmin,
    /// A password does not satisfy the policy.
    #[error(transparent)]
    WeakPassword(#[from] kedge_auth::WeakPassword),
    /// Roles are malformed, or name something that does not exist.
    #[error(
        "Cannot assign roles to {whom} because the following roles are unknown, malformed or role parameters are undefined: \
         [{}]", roles.join(",")
    )]
    UndefinedRoles {
        /// "user" or "group".
        whom: &'static str,
        /// The text of the roles.
        roles: Vec<String>,
    },
    /// The cluster that shares the users did not make the change.
    #[error(transparent)]
    Cluster(#[from] ChangeError),
    /// The users could not be saved.
    #[error("cannot save the users: {0}")]
    Save(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file of users cannot be read.
    #[error(transparent)]
    Read(#[from] DiskError),
    /// The file is missing, though it existed.
    #[error(transparent)]
    Missing(#[from] StateFileError),
    /// The file of users is damaged.
    #[error("{}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error in it.
        source: kedge_auth::AuthError,
    },
}

/// An edit of users, which is repeated if another change comes first. After an error they may be partly edited.
pub type EditUsers<'e> = dyn FnMut(&mut UserStore) -> Result<(), UsersError> + 'e;

/// The cluster whose nodes share their users.
pub trait SharedUsers: Send + Sync {
    /// Changes the users of the cluster, and has `users` [follow](Users::follow) them.
    ///
    /// # Errors
    /// `Cluster`, and the errors of `edit`: nothing changes.
    fn change(&self, users: &Users, edit: &mut EditUsers<'_>) -> Result<(), UsersError>;
}

/// All users. Reads never wait; a change is saved before it is visible.
///
/// The nodes of a cluster share their users, except for those with reserved names: changes are made in the cluster, and each
/// node has a copy.
pub struct Users {
    current: ArcSwap<UserStore>,
    save: RankedMutex<UsersSave, SaveUsers>,
    shared: OnceLock<Arc<dyn SharedUsers>>,
    /// The revision of the cluster's users that is followed; 0 if there is none.
    followed: watch::Sender<u64>,
    audit: Audit,
    administrator: OnceLock<String>,
    password_chars_min: usize,
    upgrades: HashUpgrades,
}

impl std::fmt::Debug for Users {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Users").finish_non_exhaustive()
    }
}

impl Users {
    /// Opens the users of a file, which is replaced at every change. Without a file, and if there never was one, there
    /// are none.
    ///
    /// # Errors
    /// `Read`, `Missing`, `Damaged`; `Refused` when the system has no random bytes.
    pub fn open(disk: Arc<dyn Disk>, path: PathBuf) -> Result<Self, UsersError> {
        let store = if state_files::is_there(&*disk, &path)? {
            let bytes = read_file(&*disk, &path)?;
            UserStore::from_json(&String::from_utf8_lossy(&bytes)).map_err(|source| {
                UsersError::Damaged {
                    path: path.clone(),
                    source,
                }
            })?
        } else {
            UserStore::new()?
        };
        let save = move |store: &UserStore| {
            replace_file(&*disk, &path, store.to_json().as_bytes())?;
            Ok(state_files::saved(&*disk, &path)?)
        };
        Ok(Self::new(store, Box::new(save)))
    }

    /// Creates the users from a store, with the function that saves changes.
    #[must_use]
    pub fn new(store: UserStore, save: SaveUsers) -> Self {
        Self {
            followed: watch::Sender::new(revision(&store)),
            current: ArcSwap::from_pointee(store),
            save: RankedMutex::new(save),
            shared: OnceLock::new(),
            audit: Audit::off(),
            administrator: OnceLock::new(),
            password_chars_min: 1,
            upgrades: HashUpgrades::default(),
        }
    }

    /// Sets the cost of hashes of passwords that are set or proven from now on.
    #[must_use]
    pub fn with_hash_cost(self, cost: HashCost) -> Self {
        let mut store = UserStore::clone(&self.current.load());
        store.set_hash_cost(cost);
        self.current.store(Arc::new(store));
        self
    }

    /// Sets the minimum length of new passwords, until a policy is set.
    #[must_use]
    pub fn with_password_length_min(self, chars: usize) -> Self {
        Self {
            password_chars_min: chars,
            ..self
        }
    }

    /// Returns the policy of passwords.
    #[must_use]
    pub fn password_policy(&self) -> PasswordPolicy {
        let store = self.read();
        let by_settings = || PasswordPolicy {
            length_min: u8::try_from(self.password_chars_min).unwrap_or(u8::MAX),
            ..PasswordPolicy::default()
        };
        store.password_policy().cloned().unwrap_or_else(by_settings)
    }

    /// Checks a new password.
    ///
    /// # Errors
    /// `WeakPassword`.
    pub fn check_password(&self, password: &str) -> Result<(), UsersError> {
        // The error of an empty password is better.
        if password.is_empty() {
            return Ok(());
        }
        Ok(self.password_policy().check(password)?)
    }

    /// Sets the log of logins and refused operations.
    #[must_use]
    pub fn audited(self, audit: Audit) -> Self {
        audit.configure(self.read().audit_settings());
        Self { audit, ..self }
    }

    /// Returns the settings of the audit log: those that an administrator has made, or the node's own; `None` if there is no place for a log.
    #[must_use]
    pub fn audit_settings(&self) -> Option<AuditSettings> {
        let defaults = self.audit.defaults()?;
        let store = self.read();
        Some(store.audit_settings().unwrap_or(defaults).clone())
    }

    /// Sets the administrator of the settings; the first call counts. Management lists this user apart from the created
    /// ones.
    pub fn name_administrator(&self, user: &str) {
        self.administrator.get_or_init(|| user.to_owned());
    }

    /// Returns whether this is the administrator of the settings, and still is an administrator.
    #[must_use]
    pub fn is_built_in(&self, store: &UserStore, user: &str) -> bool {
        let named = self.administrator.get().is_some_and(|named| named == user);
        named && store.allows(user, kedge_auth::Privilege::Admin, None)
    }

    /// Returns the log of logins and refused operations.
    #[must_use]
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Returns the current users. Never blocks.
    #[must_use]
    pub fn read(&self) -> Arc<UserStore> {
        self.current.load_full()
    }

    /// Shares the users with a cluster: later changes are made there. The first call counts.
    pub fn share(&self, with: Arc<dyn SharedUsers>) {
        self.shared.get_or_init(|| with);
    }

    /// Returns the revision of the cluster's users that is followed, and its changes; 0 for own users.
    #[must_use]
    pub fn followed(&self) -> watch::Receiver<u64> {
        self.followed.subscribe()
    }

    /// Changes the users, in the cluster if they are shared. Nothing changes if `change` or saving fails. `change` is repeated
    /// if another one came first in the cluster.
    ///
    /// # Errors
    /// `Refused` with the error of `change`; `LastAdmin` if no user would have all rights any more; `Save`, `Cluster`.
    pub fn change<T>(
        &self,
        mut change: impl FnMut(&mut UserStore) -> Result<T, kedge_auth::AuthError>,
    ) -> Result<T, UsersError> {
        let Some(shared) = self.shared.get() else {
            return self.make(change, false);
        };
        let mut done = None;
        let mut edit = |store: &mut UserStore| {
            done = Some(keep_admin(store, &mut change)?);
            Ok(())
        };
        shared.change(self, &mut edit)?;
        Ok(done.expect("the change was made"))
    }

    /// Changes this node's own copy of the users at a start that repeats the change next time: on a full disk the change
    /// holds without being saved, and the next change saves it.
    ///
    /// # Errors
    /// Those of [`Users::change`], except a full disk and `Cluster`.
    pub fn change_at_start<T>(
        &self,
        change: impl FnOnce(&mut UserStore) -> Result<T, kedge_auth::AuthError>,
    ) -> Result<T, UsersError> {
        self.make(change, true)
    }

    /// Replaces the users by those of the cluster, unless newer ones are followed. False if nothing changed. On a full disk
    /// they hold without being saved: rights that were taken from a user must not stay.
    ///
    /// # Errors
    /// `Save`: the former users stay.
    pub fn follow(&self, store: UserStore) -> Result<bool, UsersError> {
        let save = self.save.lock();
        let before = self.current.load();
        if let (Some(followed), Some(new)) = (before.shared(), store.shared())
            && followed.cluster == new.cluster
            && followed.revision >= new.revision
        {
            return Ok(false);
        }
        self.put_in_place(&save, &before, store, true)?;
        Ok(true)
    }

    /// Verifies a password. One that is proven and was verified at another cost gets a hash of the present one, which a task
    /// saves. Takes tens of milliseconds, see [`UserStore::verify_password`].
    #[must_use]
    pub fn verify_password(&self, id: &str, password: &[u8]) -> bool {
        let store = self.read();
        let is_right = store.verify_password(id, password);
        if is_right {
            self.prove(&store, id, password);
        }
        is_right
    }

    /// Takes note of a password that was proven with these users.
    pub fn prove(&self, store: &UserStore, id: &str, password: &[u8]) {
        if let Some(upgrade) = store.hash_upgrade(id, password) {
            self.upgrades.put(upgrade);
        }
    }

    /// Starts the task that saves hashes of proven passwords.
    ///
    /// # Errors
    /// [`ScheduleError`] after the executor's end.
    pub fn save_hashes_by(self: &Arc<Self>, pools: &TaskPools) -> Result<(), ScheduleError> {
        let users = Arc::downgrade(self);
        self.upgrades.save_by(pools, move || {
            if let Some(users) = users.upgrade() {
                users.save_proven_hashes();
            }
        })
    }

    /// Saves the waiting hashes. On a full disk they hold until the process ends.
    fn save_proven_hashes(&self) {
        let save = self.save.lock();
        let upgrades = self.upgrades.take();
        let before = self.current.load();
        let mut store = UserStore::clone(&before);
        let applied = upgrades
            .into_iter()
            .filter_map(|upgrade| store.apply_upgrade(upgrade).then_some(()))
            .count();
        if applied == 0 {
            return;
        }
        match self.put_in_place(&save, &before, store, true) {
            Ok(()) => tracing::info!(users = applied, "hashes of passwords have the present cost"),
            Err(error) => tracing::error!(%error, "cannot save hashes of passwords"),
        }
    }

    fn make<T>(
        &self,
        change: impl FnOnce(&mut UserStore) -> Result<T, kedge_auth::AuthError>,
        at_start: bool,
    ) -> Result<T, UsersError> {
        let save = self.save.lock();
        let before = self.current.load();
        let mut store = UserStore::clone(&before);
        let done = keep_admin(&mut store, change)?;
        self.put_in_place(&save, &before, store, at_start)?;
        Ok(done)
    }

    /// Saves users, and has them followed from now on.
    fn put_in_place(
        &self,
        save: &SaveUsers,
        before: &UserStore,
        mut store: UserStore,
        unsaved_on_full_disk: bool,
    ) -> Result<(), UsersError> {
        store.keep_hashes(before);
        let saved = save(&store).map_err(UsersError::Save);
        if let Err(error) = saved {
            if !(unsaved_on_full_disk && error.is_no_space()) {
                return Err(error);
            }
            tracing::warn!(
                %error,
                "the disk is full: the changed users hold until this process ends, or until they are saved with the next change"
            );
        }
        // Verified users must not queue behind strangers because another user was changed.
        store.keep_verified(before);
        let revision = revision(&store);
        self.audit.configure(store.audit_settings());
        self.current.store(Arc::new(store));
        self.followed.send_replace(revision);
        Ok(())
    }
}

/// Makes a change. The last administrator stays.
fn keep_admin<T>(
    store: &mut UserStore,
    change: impl FnOnce(&mut UserStore) -> Result<T, kedge_auth::AuthError>,
) -> Result<T, UsersError> {
    let before = admins(store);
    let done = change(store)?;
    if before > 0 && admins(store) == 0 {
        return Err(UsersError::LastAdmin);
    }
    Ok(done)
}

/// Returns the revision of a cluster's users; 0 for own ones.
fn revision(store: &UserStore) -> u64 {
    store.shared().map_or(0, |shared| shared.revision)
}

impl UsersError {
    /// Returns whether the disk was full. A retry may succeed when there is space.
    fn is_no_space(&self) -> bool {
        match self {
            Self::Save(error) => {
                let error = error.downcast_ref::<DiskError>();
                error.is_some_and(DiskError::is_no_space)
            }
            _ => false,
        }
    }
}

fn admins(store: &UserStore) -> usize {
    store
        .list()
        // The nodes of a cluster have a user that nobody logs in as.
        .filter(|user| user.id() != kedge_cluster::CLUSTER_USER)
        .filter(|user| store.allows(user.id(), kedge_auth::Privilege::Admin, None))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_survive_a_restart() {
        let disk: Arc<dyn Disk> = Arc::new(kedge_disk::PosixDisk);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users.json");
        let users = Users::open(disk.clone(), path.clone()).unwrap();
        assert!(users.read().is_empty());
        users
            .change(|store| store.add("ada", "lovelace", "admin".parse()?, 1))
            .unwrap();
        let users = Users::open(disk.clone(), path.clone()).unwrap();
        assert!(users.read().verify_password("ada", b"lovelace"));
        std::fs::write(&path, "{").unwrap();
        let damaged = Users::open(disk, path).unwrap_err();
        assert!(damaged.to_string().contains("users.json"), "{damaged}");
    }

    /// The users of a file of version 3, which has no argon2id hashes.
    fn users_of_an_earlier_release(dir: &std::path::Path) -> Arc<Users> {
        const OLD: &str = include_str!("../../kedge-auth/tests/golden/users-v3.json");
        let path = dir.join("users.json");
        std::fs::write(&path, OLD).unwrap();
        let users = Users::open(Arc::new(kedge_disk::PosixDisk), path).unwrap();
        Arc::new(users.with_hash_cost(HashCost::new(64, 1).unwrap()))
    }

    #[test]
    fn password_of_an_earlier_release_is_hashed_at_its_first_login() {
        let dir = tempfile::tempdir().unwrap();
        let users = users_of_an_earlier_release(dir.path());
        let pools = TaskPools::start(crate::pools::ONE_THREAD_EACH).unwrap();
        users.save_hashes_by(&pools).unwrap();
        assert!(!users.verify_password("user", b"eraser"));
        assert!(!users.verify_password("nobody", b"pencil"));
        assert!(users.upgrades.take().is_empty());
        assert!(users.verify_password("user", b"pencil"));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while users.read().hash_upgrade("user", b"pencil").is_some() {
            assert!(std::time::Instant::now() < deadline, "no hash was saved");
            std::thread::yield_now();
        }
        let text = std::fs::read_to_string(dir.path().join("users.json")).unwrap();
        assert!(text.contains("\"version\": 4,") && text.contains("\"memory_kib\": 64,"));
        assert!(
            users.read().is_verified("user", b"pencil"),
            "still remembered"
        );
        let again = Users::open(
            Arc::new(kedge_disk::PosixDisk),
            dir.path().join("users.json"),
        );
        let again = again.unwrap().read();
        assert!(again.verify_password("user", b"pencil") && !again.verify_password("user", b"x"));
        pools.executor().shutdown();
    }

    #[test]
    fn hash_of_a_former_password_is_not_saved() {
        let dir = tempfile::tempdir().unwrap();
        let users = users_of_an_earlier_release(dir.path());
        assert!(users.verify_password("user", b"pencil"));
        users
            .change(|store| store.set_password("user", "eraser", 2))
            .unwrap();
        users.save_proven_hashes();
        assert!(!users.read().verify_password("user", b"pencil"));
        assert!(users.read().verify_password("user", b"eraser"));
    }

    /// The users of a cluster come without hashes, which a node would have computed again at each change.
    #[test]
    fn hashes_of_unchanged_users_of_the_cluster_stay() {
        let users = users(true).with_hash_cost(HashCost::new(64, 1).unwrap());
        let own = |number| UserStore::clone(&users.read()).into_shared(revision(number));
        let documents = own(1).to_documents();
        let of_cluster = users.read().with_documents(&documents).unwrap().unwrap();
        assert!(
            of_cluster.hash_upgrade("root", b"secret").is_some(),
            "no hash"
        );
        users.prove(&users.read(), "root", b"secret");
        users.save_proven_hashes();
        users.follow(of_cluster).unwrap();
        assert!(users.read().hash_upgrade("root", b"secret").is_none());
        let mut changed = own(2);
        changed.set_password("root", "other", 3).unwrap();
        let changed = users.read().with_documents(&changed.to_documents());
        users.follow(changed.unwrap().unwrap()).unwrap();
        assert!(users.read().hash_upgrade("root", b"other").is_some());
        assert!(!users.read().verify_password("root", b"secret"));
        assert!(users.read().verify_password("root", b"other"));
    }

    fn users(works: bool) -> Users {
        let mut store = UserStore::new().unwrap();
        store
            .add("root", "secret", kedge_auth::Roles::admin(), 1)
            .unwrap();
        Users::new(
            store,
            Box::new(move |_| {
                if works {
                    Ok(())
                } else {
                    Err("no space".into())
                }
            }),
        )
    }

    #[test]
    fn user_changes_are_visible_after_they_are_saved() {
        for works in [true, false] {
            let users = users(works);
            let done = users.change(|store| store.add("ada", "lovelace", "ro_admin".parse()?, 2));
            assert_eq!(done.is_ok(), works);
            assert_eq!(users.read().exists("ada"), works);
        }
    }

    /// Each change of any user made all others pay for the hashing of their passwords again, also the nodes of a
    /// cluster.
    #[test]
    fn changing_one_user_keeps_verified_passwords_of_others() {
        let users = users(true);
        let is_verified =
            |user: &str, password: &str| users.read().is_verified(user, password.as_bytes());
        assert!(is_verified("root", "secret"), "set in this process");
        users
            .change(|store| store.add("ada", "lovelace", "ro_admin".parse()?, 2))
            .unwrap();
        assert!(is_verified("root", "secret") && is_verified("ada", "lovelace"));
        users
            .change(|store| store.set_password("ada", "byron", 3))
            .unwrap();
        assert!(!is_verified("ada", "lovelace") && is_verified("ada", "byron"));
        assert!(is_verified("root", "secret") && !is_verified("root", "wrong"));
        users.change(|store| store.remove("ada")).unwrap();
        assert!(!is_verified("ada", "byron") && is_verified("root", "secret"));
    }

    /// A start on a full disk could not set the given password of the administrator, and failed.
    #[test]
    fn full_disk_accepts_only_user_changes_of_a_start() {
        let disk = Arc::new(kedge_disk::SimDisk::new(1));
        let dir = std::path::Path::new("/data");
        disk.create_dir_all(dir).unwrap();
        let open = || Users::open(disk.clone(), dir.join("users.json")).unwrap();
        let users = open();
        users
            .change(|store| store.add("ada", "lovelace", "admin".parse()?, 1))
            .unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        let refused = users.change(|store| store.set_password("ada", "byron", 2));
        assert!(matches!(refused, Err(UsersError::Save(_))), "{refused:?}");
        assert!(users.read().verify_password("ada", b"lovelace"));
        users
            .change_at_start(|store| store.set_password("ada", "byron", 2))
            .unwrap();
        assert!(users.read().verify_password("ada", b"byron"));
        assert!(open().read().verify_password("ada", b"lovelace"));
        disk.set_capacity(None);
        users
            .change(|store| store.add("bob", "secret", "ro_admin".parse()?, 3))
            .unwrap();
        assert!(open().read().verify_password("ada", b"byron"));
        disk.fail_next(kedge_disk::Operation::Sync, kedge_disk::Fault::NoSpace);
        let refused = users.change_at_start(|store| store.set_password("ada", "again", 4));
        assert!(matches!(refused, Err(UsersError::Save(_))), "{refused:?}");
    }

    /// A cluster that makes each change after another one came first.
    struct Cluster;

    impl SharedUsers for Cluster {
        fn change(&self, users: &Users, edit: &mut EditUsers<'_>) -> Result<(), UsersError> {
            edit(&mut UserStore::clone(&users.read()))?;
            let mut next = UserStore::clone(&users.read()).into_shared(revision(2));
            next.add("first", "secret", "ro_admin".parse()?, 2)?;
            edit(&mut next)?;
            users.follow(next).map(drop)
        }
    }

    fn revision(revision: u64) -> kedge_auth::UsersRevision {
        kedge_auth::UsersRevision {
            cluster: "00112233445566778899aabbccddeeff".to_owned(),
            generation: String::new(),
            revision,
        }
    }

    /// Returns a cluster without users, as a node reads it.
    fn nobody(users: &Users, number: u64) -> UserStore {
        let documents = UserStore::new().unwrap().into_shared(revision(number));
        let read = users.read().with_documents(&documents.to_documents());
        read.unwrap().unwrap()
    }

    #[test]
    fn changes_of_shared_users_are_made_in_the_cluster() {
        let users = users(true);
        assert_eq!(*users.followed().borrow(), 0);
        users.share(Arc::new(Cluster));
        users
            .change(|store| store.add("ada", "lovelace", "admin".parse()?, 3))
            .unwrap();
        assert_eq!(*users.followed().borrow(), 2);
        let ids = |users: &Users| -> Vec<String> {
            let users = users.read();
            users.list().map(|user| user.id().to_owned()).collect()
        };
        assert_eq!(ids(&users), ["ada", "first", "root"]);
        assert!(users.read().is_verified("ada", b"lovelace"));
        // Older ones come too late.
        assert!(!users.follow(nobody(&users, 1)).unwrap());
        assert_eq!(ids(&users).len(), 3);
        assert!(users.follow(nobody(&users, 3)).unwrap());
        assert!(ids(&users).is_empty());
    }

    /// A user whose rights were taken would have kept them.
    #[test]
    fn full_disk_does_not_delay_users_of_the_cluster() {
        let disk = Arc::new(kedge_disk::SimDisk::new(1));
        let dir = std::path::Path::new("/data");
        disk.create_dir_all(dir).unwrap();
        let open = || Users::open(disk.clone(), dir.join("users.json")).unwrap();
        let users = open();
        let mut first = nobody(&users, 1);
        first
            .add("ada", "lovelace", "admin".parse().unwrap(), 1)
            .unwrap();
        users.follow(first).unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        let mut second = nobody(&users, 2);
        second
            .add("bob", "secret", "admin".parse().unwrap(), 1)
            .unwrap();
        users.follow(second).unwrap();
        assert!(users.read().exists("bob") && !users.read().exists("ada"));
        assert!(open().read().exists("ada"));
        disk.set_capacity(None);
        users.follow(nobody(&users, 3)).unwrap();
        assert_eq!(*open().followed().borrow(), 3);
    }

    #[test]
    fn built_in_administrator_follows_the_settings() {
        let users = users(true);
        users
            .change(|store| store.add("ada", "lovelace", "admin".parse()?, 2))
            .unwrap();
        let built_in = |user: &str| users.is_built_in(&users.read(), user);
        assert!(!built_in("root") && !built_in("ada"));
        users.name_administrator("root");
        users.name_administrator("ada");
        assert!(built_in("root") && !built_in("ada"));
        users
            .change(|store| store.set_roles("root", "ro_admin".parse()?))
            .unwrap();
        assert!(!built_in("root"));
    }

    #[test]
    fn last_administrator_cannot_be_removed() {
        let users = users(true);
        let removed = users.change(|store| store.remove("root"));
        assert!(matches!(removed, Err(UsersError::LastAdmin)), "{removed:?}");
        let demoted = users.change(|store| store.set_roles("root", "ro_admin".parse()?));
        assert!(matches!(demoted, Err(UsersError::LastAdmin)), "{demoted:?}");
        let by = kedge_auth::Privileges::ALL;
        let group = kedge_auth::GroupChange {
            roles: Some(kedge_auth::Roles::admin()),
            ..kedge_auth::GroupChange::default()
        };
        let in_group = kedge_auth::UserChange {
            roles: Some(kedge_auth::Roles::default()),
            groups: Some(vec!["ops".to_owned()]),
            ..kedge_auth::UserChange::default()
        };
        users
            .change(|store| {
                store.set_group("ops", &group, by)?;
                store.set_user("root", &in_group, by, 2)
            })
            .unwrap();
        let removed = users.change(|store| store.remove_group("ops", by));
        assert!(matches!(removed, Err(UsersError::LastAdmin)), "{removed:?}");
        users
            .change(|store| store.add("ada", "lovelace", "admin".parse()?, 2))
            .unwrap();
        users.change(|store| store.remove("root")).unwrap();
        assert!(!users.read().exists("root"));
    }
}
