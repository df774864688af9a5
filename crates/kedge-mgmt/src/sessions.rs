//! The sessions of the console: a login by a form gives a browser a cookie, whose token stands for the password.
//!
//! Invariants:
//! * A token is random, is in this table only while its session lives, and is overwritten when the session ends.
//! * A session ends when it was idle for too long, at a logout, when its user's password changes, and when the user is removed.
//! * The session of a user of a directory ends with the directory's settings, and some hours after the login: the directory is not asked
//!   again, and may not know the user any more.
//! * The number of sessions is limited, in total and of a user: the least recently used one gives way, of the same user first. So no
//!   user ends the sessions of another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_auth::{ExternalGrants, LdapSettings, UserStore, external_name};
use kedge_sync::{RankedMutex, ranks::ConsoleSessions};
use kedge_types::limits::{MGMT_SESSIONS_MAX, MGMT_SESSIONS_PER_USER_MAX};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The secret that a browser holds.
pub(crate) type Token = Zeroizing<String>;

/// The longest session of a user of a directory.
const DIRECTORY_SESSION_MAX: Duration = Duration::from_secs(8 * 3_600);

/// The user of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionOwner {
    pub(crate) user: String,
    pub(crate) proof: LoginProof,
}

/// The proof with which a session began; it has to hold for each request.
#[derive(Clone, Debug)]
pub(crate) enum LoginProof {
    /// The password with this mark.
    Password(Vec<u8>),
    /// A password that the directory with these settings has checked, and the rights that it has shown.
    Directory(Arc<LdapSettings>, Arc<ExternalGrants>),
}

impl SessionOwner {
    /// Returns whether the login still holds, as far as these users show.
    fn holds(&self, users: &UserStore) -> bool {
        match &self.proof {
            LoginProof::Password(mark) => {
                let user = users.get(&self.user);
                user.is_some_and(|user| user.password_mark() == mark)
            }
            LoginProof::Directory(settings, _) => {
                let name = external_name(&self.user);
                name.is_some_and(|name| users.asks_directory(name))
                    && users.ldap() == Some(settings)
            }
        }
    }

    /// Returns the rights that the directory has shown.
    pub(crate) fn grants(&self) -> Option<&Arc<ExternalGrants>> {
        match &self.proof {
            LoginProof::Password(_) => None,
            LoginProof::Directory(_, grants) => Some(grants),
        }
    }
}

/// A session as its requests see it.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) owner: Arc<SessionOwner>,
    /// The name of the session in the audit log. It is no secret.
    pub(crate) id: Arc<str>,
}

struct Entry {
    token: Token,
    session: Session,
    began: Instant,
    used: Instant,
}

impl Entry {
    fn has(&self, token: &str) -> bool {
        self.token.as_bytes().ct_eq(token.as_bytes()).into()
    }

    fn is_over(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.began);
        self.session.owner.grants().is_some() && age >= DIRECTORY_SESSION_MAX
    }
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// There is no session with this token, or its time is over.
    Unknown,
    /// The login does not hold any more.
    Revoked,
}

/// The sessions of a server.
pub(crate) struct Sessions {
    idle_max: Duration,
    live: RankedMutex<ConsoleSessions, Vec<Entry>>,
}

impl Sessions {
    /// Creates an empty table, whose sessions end after this time without a request.
    pub(crate) fn new(idle_max: Duration) -> Self {
        Self {
            idle_max,
            live: RankedMutex::default(),
        }
    }

    /// Begins a session. `token` and `id` are random.
    pub(crate) fn begin(&self, token: Token, id: &str, owner: SessionOwner, now: Instant) {
        let mut live = self.live.lock();
        self.expire(&mut live, now);
        let of_user = |entry: &Entry| entry.session.owner.user == owner.user;
        let own = live.iter().filter(|entry| of_user(entry)).count();
        let oldest = |live: &[Entry], only_own: bool| {
            let all = live.iter().enumerate();
            let asked = all.filter(|(_, entry)| !only_own || of_user(entry));
            asked.min_by_key(|(_, entry)| entry.used).map(|(at, _)| at)
        };
        let victim = if own >= MGMT_SESSIONS_PER_USER_MAX {
            oldest(&live, true)
        } else if live.len() >= MGMT_SESSIONS_MAX {
            oldest(&live, own > 0)
        } else {
            None
        };
        if let Some(at) = victim {
            live.swap_remove(at);
        }
        live.push(Entry {
            token,
            session: Session {
                owner: Arc::new(owner),
                id: id.into(),
            },
            began: now,
            used: now,
        });
    }

    /// Returns the session of a token, which counts as a use, if its login holds with these users.
    pub(crate) fn find(
        &self,
        token: &str,
        now: Instant,
        users: &UserStore,
    ) -> Result<Session, SessionEnd> {
        let mut live = self.live.lock();
        self.expire(&mut live, now);
        let found = live.iter().position(|entry| entry.has(token));
        let at = found.ok_or(SessionEnd::Unknown)?;
        let entry = &mut live[at];
        if !entry.session.owner.holds(users) {
            live.swap_remove(at);
            return Err(SessionEnd::Revoked);
        }
        entry.used = now;
        Ok(entry.session.clone())
    }

    /// Ends the session of a token, if there is one.
    pub(crate) fn end(&self, token: &str) {
        self.live.lock().retain(|entry| !entry.has(token));
    }

    /// Returns the number of sessions.
    pub(crate) fn count(&self, now: Instant) -> usize {
        let mut live = self.live.lock();
        self.expire(&mut live, now);
        live.len()
    }

    fn expire(&self, live: &mut Vec<Entry>, now: Instant) {
        let idle = |entry: &Entry| now.saturating_duration_since(entry.used);
        live.retain(|entry| idle(entry) < self.idle_max && !entry.is_over(now));
    }
}

#[cfg(test)]
mod tests {
    use kedge_auth::Roles;

    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    /// The directory's settings, and rights that it has shown.
    fn directory() -> (Arc<LdapSettings>, Arc<ExternalGrants>) {
        let settings = LdapSettings {
            authentication_enabled: true,
            ..LdapSettings::default()
        };
        (Arc::new(settings), Arc::default())
    }

    fn users() -> UserStore {
        let mut users = UserStore::new().unwrap();
        users.set_hash_cost(kedge_auth::HashCost::new(64, 1).unwrap());
        for user in ["ada", "bob"] {
            users.add(user, "secret", Roles::default(), 1).unwrap();
        }
        users.set_ldap(Some(LdapSettings::clone(&directory().0)));
        users
    }

    struct Rig(Sessions, Instant, UserStore);

    impl Rig {
        fn new() -> Self {
            Self(Sessions::new(IDLE), Instant::now(), users())
        }

        fn begin(&self, token: &str, user: &str, secs: u64) {
            let mark = self.2.get(user).map(|user| user.password_mark().to_vec());
            self.begin_by(
                token,
                user,
                LoginProof::Password(mark.unwrap_or_default()),
                secs,
            );
        }

        fn begin_by(&self, token: &str, user: &str, proof: LoginProof, secs: u64) {
            let owner = SessionOwner {
                user: user.to_owned(),
                proof,
            };
            let token = Token::new(token.to_owned());
            self.0.begin(token, "id", owner, self.at(secs));
        }

        fn at(&self, secs: u64) -> Instant {
            self.1 + Duration::from_secs(secs)
        }

        fn find(&self, token: &str, secs: u64) -> Result<String, SessionEnd> {
            let found = self.0.find(token, self.at(secs), &self.2);
            found.map(|session| session.owner.user.clone())
        }
    }

    #[test]
    fn session_ends_after_its_last_request() {
        let rig = Rig::new();
        rig.begin("t", "ada", 0);
        assert_eq!(rig.find("t", 599), Ok("ada".to_owned()));
        assert_eq!(rig.find("other", 599), Err(SessionEnd::Unknown));
        assert_eq!(rig.find("", 599), Err(SessionEnd::Unknown));
        assert_eq!(rig.find("t", 599 + 599), Ok("ada".to_owned()));
        assert_eq!(rig.0.count(rig.at(1_198 + 599)), 1);
        assert_eq!(rig.find("t", 1_198 + 600), Err(SessionEnd::Unknown));
        assert_eq!(rig.0.count(rig.at(1_198 + 600)), 0);
    }

    #[test]
    fn session_ends_at_a_logout_and_with_its_password() {
        let rig = Rig::new();
        for token in ["a", "b", "c"] {
            rig.begin(token, "ada", 0);
        }
        rig.0.end("a");
        assert_eq!(rig.find("a", 1), Err(SessionEnd::Unknown));
        let (mut changed, mut removed) = (rig.2.clone(), rig.2.clone());
        changed.set_password("ada", "secret", 2).unwrap();
        removed.remove("ada").unwrap();
        for (token, users) in [("b", changed), ("c", removed)] {
            let found = rig.0.find(token, rig.at(1), &users);
            assert_eq!(found.map(drop), Err(SessionEnd::Revoked));
            // Also if the password is set back.
            assert_eq!(rig.find(token, 1), Err(SessionEnd::Unknown));
        }
    }

    #[test]
    fn session_of_a_directory_user_ends_with_the_settings_and_after_some_hours() {
        let rig = Rig::new();
        let (settings, grants) = directory();
        let proof = LoginProof::Directory(settings.clone(), grants);
        for token in ["a", "b", "c", "d", "e"] {
            rig.begin_by(token, "^eve", proof.clone(), 0);
        }
        let other = LdapSettings {
            port: settings.port + 1,
            ..LdapSettings::clone(&settings)
        };
        let off = LdapSettings {
            authentication_enabled: false,
            ..LdapSettings::clone(&settings)
        };
        for (token, settings) in [("a", Some(other)), ("b", Some(off)), ("c", None)] {
            let mut users = rig.2.clone();
            users.set_ldap(settings);
            let found = rig.0.find(token, rig.at(1), &users);
            assert_eq!(found.map(drop), Err(SessionEnd::Revoked), "{token}");
        }
        // The name is a local user's from now on.
        let mut users = rig.2.clone();
        users.add("eve", "secret", Roles::default(), 1).unwrap();
        let found = rig.0.find("d", rig.at(1), &users);
        assert_eq!(found.map(drop), Err(SessionEnd::Revoked));
        let hours = DIRECTORY_SESSION_MAX.as_secs();
        for secs in (300..hours).step_by(300) {
            assert_eq!(rig.find("e", secs), Ok("^eve".to_owned()), "{secs}");
        }
        assert_eq!(rig.find("e", hours), Err(SessionEnd::Unknown));
    }

    #[test]
    fn sessions_of_a_user_give_way_to_others_of_that_user() {
        let rig = Rig::new();
        rig.begin("of another", "bob", 0);
        for number in 0..MGMT_SESSIONS_PER_USER_MAX {
            rig.begin(&format!("t{number}"), "ada", 1 + number as u64);
        }
        assert!(rig.find("t0", 100).is_ok(), "used last");
        rig.begin("new", "ada", 101);
        assert_eq!(rig.find("t1", 102), Err(SessionEnd::Unknown));
        for token in ["t0", "t2", "new", "of another"] {
            assert!(rig.find(token, 102).is_ok(), "{token}");
        }
        assert_eq!(rig.0.count(rig.at(102)), MGMT_SESSIONS_PER_USER_MAX + 1);
    }

    #[test]
    fn number_of_sessions_is_limited() {
        let rig = Rig::new();
        for number in 0..MGMT_SESSIONS_MAX {
            rig.begin(&format!("t{number}"), &format!("user{number}"), 1);
        }
        // A user with sessions takes the place of one of them.
        rig.begin("second", "user5", 2);
        assert_eq!(rig.find("t5", 3), Err(SessionEnd::Unknown));
        rig.begin("new", "ada", 3);
        assert_eq!(rig.0.count(rig.at(3)), MGMT_SESSIONS_MAX);
        assert!(rig.find("new", 3).is_ok());
        // It is there, of a user that is not.
        assert_eq!(rig.find("second", 3), Err(SessionEnd::Revoked));
    }
}
