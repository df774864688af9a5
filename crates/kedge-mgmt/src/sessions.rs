//! The sessions of the console: a login by a form gives a browser a cookie, whose token stands for the password.
//!
//! Invariants:
//! * A token is random, is in this table only while its session lives, and is overwritten when the session ends.
//! * A session ends when it was idle for too long, at a logout, when its user's password changes, and when the user is removed.
//! * The number of sessions is limited, in total and of a user: the least recently used one gives way, of the same user first. So no
//!   user ends the sessions of another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kedge_sync::{RankedMutex, ranks::ConsoleSessions};
use kedge_types::limits::{MGMT_SESSIONS_MAX, MGMT_SESSIONS_PER_USER_MAX};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// The secret that a browser holds.
pub(crate) type Token = Zeroizing<String>;

/// The user of a session, and the mark of the password with which it began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionOwner {
    pub(crate) user: String,
    pub(crate) password_mark: Vec<u8>,
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
    used: Instant,
}

impl Entry {
    fn has(&self, token: &str) -> bool {
        self.token.as_bytes().ct_eq(token.as_bytes()).into()
    }
}

/// The reason why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// There is no session with this token, or it was idle for too long.
    Unknown,
    /// The user was removed, or has another password.
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
            used: now,
        });
    }

    /// Returns the session of a token, which counts as a use. `mark_of` gives the mark of a user's present password.
    pub(crate) fn find(
        &self,
        token: &str,
        now: Instant,
        mark_of: impl FnOnce(&str) -> Option<Vec<u8>>,
    ) -> Result<Session, SessionEnd> {
        let mut live = self.live.lock();
        self.expire(&mut live, now);
        let found = live.iter().position(|entry| entry.has(token));
        let at = found.ok_or(SessionEnd::Unknown)?;
        let entry = &mut live[at];
        let owner = &entry.session.owner;
        if mark_of(&owner.user).as_ref() != Some(&owner.password_mark) {
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
        live.retain(|entry| now.saturating_duration_since(entry.used) < self.idle_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(600);

    fn owner(user: &str) -> SessionOwner {
        SessionOwner {
            user: user.to_owned(),
            password_mark: vec![1],
        }
    }

    struct Rig(Sessions, Instant);

    impl Rig {
        fn new() -> Self {
            Self(Sessions::new(IDLE), Instant::now())
        }

        fn begin(&self, token: &str, user: &str, secs: u64) {
            let token = Token::new(token.to_owned());
            self.0.begin(token, "id", owner(user), self.at(secs));
        }

        fn at(&self, secs: u64) -> Instant {
            self.1 + Duration::from_secs(secs)
        }

        fn find(&self, token: &str, secs: u64) -> Result<String, SessionEnd> {
            let found = self.0.find(token, self.at(secs), |_| Some(vec![1]));
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
        for (token, mark) in [("b", Some(vec![2])), ("c", None)] {
            let found = rig.0.find(token, rig.at(1), |user| {
                assert_eq!(user, "ada");
                mark.clone()
            });
            assert_eq!(found.map(drop), Err(SessionEnd::Revoked));
            // Also if the password is set back.
            assert_eq!(rig.find(token, 1), Err(SessionEnd::Unknown));
        }
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
        assert!(rig.find("new", 3).is_ok() && rig.find("second", 3).is_ok());
    }
}
