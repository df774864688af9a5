//! The authority: admits logins, asks the directory, and remembers.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kedge_auth::{AuthError, ExternalCache, ExternalGrants, LdapSettings, external_id};
use kedge_node::external::{
    ExternalAuthority, ExternalLogin, ExternalRefusal, LdapTrial, LoginDone, PasswordAttempt,
    TokenAttempt, TrialDone,
};
use kedge_node::password_checks::LoginGuard;
use kedge_node::users::Users;
use kedge_sync::{
    RankedMutex,
    ranks::{ExternalLogins, ExternalWaiting},
};
use kedge_types::Clock;

use crate::admission::{Admission, UserTurn};
use crate::directory::{Directory, DirectoryError};
use crate::figures::Figures;
use crate::jwt::{KeyRing, TokenProblem, UnverifiedToken};
use crate::runtime::TaskThread;
use crate::slots::ConnectionSlots;

/// The name of the user of a token that was not verified yet.
const NO_USER: &str = "";

/// The authority of external users.
pub struct Authority {
    thread: TaskThread,
    parts: Arc<Parts>,
}

/// The state that the tasks of the authority share.
struct Parts {
    users: Arc<Users>,
    guard: Arc<LoginGuard>,
    clock: Arc<dyn Clock>,
    cache: RankedMutex<ExternalLogins, ExternalCache>,
    waiting: RankedMutex<ExternalWaiting, Admission>,
    connections: ConnectionSlots,
    figures: Figures,
    keys: KeyRing,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates the authority. It starts no thread before the first check.
    ///
    /// # Errors
    /// [`AuthError::NoRandomness`].
    pub fn new(
        users: Arc<Users>,
        guard: Arc<LoginGuard>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuthError> {
        Ok(Self {
            thread: TaskThread::default(),
            parts: Arc::new(Parts {
                users,
                guard,
                clock,
                cache: RankedMutex::new(ExternalCache::new()?),
                waiting: RankedMutex::new(Admission::default()),
                connections: ConnectionSlots::default(),
                figures: Figures::default(),
                keys: KeyRing::default(),
            }),
        })
    }

    /// Ends the thread. Checks that still run are dropped.
    pub fn stop(&self) {
        self.thread.stop();
    }
}

/// A login that was admitted; it leaves when it is dropped.
struct Admitted {
    parts: Arc<Parts>,
    address: IpAddr,
    user: String,
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.parts.waiting.lock().leave(self.address, &self.user);
    }
}

/// The receiver of an outcome. A check that is dropped before its end, as the server stops, has one, too.
struct Answer(Option<LoginDone>);

impl Answer {
    fn give(mut self, outcome: Result<ExternalLogin, ExternalRefusal>) {
        if let Some(done) = self.0.take() {
            done(outcome);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(ExternalRefusal::Unavailable));
        }
    }
}

impl Parts {
    fn now_ms(&self) -> u64 {
        self.clock.now().mono_ns / 1_000_000
    }

    fn remembered(&self, user: &str, password: &[u8]) -> Option<ExternalLogin> {
        let users = self.users.read();
        let settings = users.ldap()?;
        let now_ms = self.now_ms();
        let grants = self.cache.lock().get((user, password), settings, now_ms)?;
        let login = self.login(user, grants).ok()?;
        self.figures.remembered.fetch_add(1, Ordering::Relaxed);
        Some(login)
    }

    /// Returns the login of a user whose password is right.
    fn login(
        &self,
        user: &str,
        grants: Arc<ExternalGrants>,
    ) -> Result<ExternalLogin, ExternalRefusal> {
        let id = external_id(user);
        let roles = self.users.read().roles_of_login(&id, Some(&grants));
        match roles.is_empty() {
            true => Err(ExternalRefusal::NoRoles),
            false => Ok(ExternalLogin { id, grants }),
        }
    }

    /// Checks a password when it is the user's turn.
    async fn check(
        &self,
        attempt: &PasswordAttempt,
        turn: UserTurn,
    ) -> Result<ExternalLogin, ExternalRefusal> {
        let (address, user, password) = (attempt.address, &*attempt.user, &*attempt.password);
        let _turn = turn.lock().await;
        if let Some(login) = self.remembered(user, password) {
            return Ok(login);
        }
        // Wrong ones may have been checked while this one waited.
        if self.guard.refusal(address, user).is_some() {
            return Err(ExternalRefusal::TooSoon);
        }
        let users = self.users.read();
        let settings = users.ldap().filter(|_| users.asks_directory(user)).cloned();
        drop(users);
        // The settings may have changed meanwhile.
        let settings = settings.ok_or(ExternalRefusal::Unavailable)?;
        match self.ask(&settings, user, password).await {
            Ok(grants) => {
                self.guard.note(address, user, true);
                self.figures.answered(true);
                let grants = Arc::new(grants);
                let (login, now_ms) = ((user, password.as_slice()), self.now_ms());
                let mut cache = self.cache.lock();
                cache.insert(login, grants.clone(), &settings, now_ms);
                drop(cache);
                self.login(user, grants)
            }
            Err(DirectoryError::Refused) => {
                self.guard.note(address, user, false);
                self.figures.answered(false);
                Err(ExternalRefusal::BadCredentials)
            }
            Err(error) => {
                self.figures.failed(&error, self.now_ms());
                Err(ExternalRefusal::Unavailable)
            }
        }
    }

    /// Checks a token.
    async fn check_token(&self, attempt: &TokenAttempt) -> Result<ExternalLogin, ExternalRefusal> {
        self.figures.tokens.fetch_add(1, Ordering::Relaxed);
        let refused = |problem: TokenProblem| {
            self.figures.tokens_refused.fetch_add(1, Ordering::Relaxed);
            tracing::info!(from = %attempt.address, %problem, "a token was refused");
            ExternalRefusal::BadToken
        };
        let users = self.users.read();
        let settings = users.jwt().filter(|_| users.accepts_tokens()).cloned();
        drop(users);
        let settings = settings.ok_or(ExternalRefusal::BadToken)?;
        let token = UnverifiedToken::read(&attempt.token).map_err(refused)?;
        let issuer = token.issuer(&settings).map_err(refused)?;
        let keys = self.keys.keys_for(&token, issuer, self.now_ms()).await;
        let keys = keys.map_err(|_| {
            self.figures.tokens_failed.fetch_add(1, Ordering::Relaxed);
            ExternalRefusal::Unavailable
        })?;
        let now_s = self.clock.now().unix_ns / 1_000_000_000;
        let (user, grants) = token.verify(issuer, &keys, now_s).map_err(refused)?;
        self.login(&user, Arc::new(grants))
    }

    async fn ask(
        &self,
        settings: &Arc<LdapSettings>,
        user: &str,
        password: &[u8],
    ) -> Result<ExternalGrants, DirectoryError> {
        self.figures.checks.fetch_add(1, Ordering::Relaxed);
        let directory = Directory::new(settings.clone())?;
        let max = settings.max_parallel_connections.into();
        let _connection = self.connections.take(max).await;
        directory.authenticate(user, password).await
    }
}

async fn try_settings(settings: LdapSettings, trial: LdapTrial) -> Result<Vec<String>, String> {
    let tried = async {
        let directory = Directory::new(Arc::new(settings))?;
        match trial {
            LdapTrial::Connectivity => directory.try_hosts().await.map(|()| Vec::new()),
            LdapTrial::Authentication { user, password } => {
                let grants = directory.authenticate(&user, &password).await?;
                Ok(grants.directory_groups.into_iter().collect())
            }
            LdapTrial::Groups { user } => {
                let groups = directory.groups_of(&user).await?;
                Ok(groups.into_iter().collect())
            }
        }
    };
    tried
        .await
        .map_err(|error: DirectoryError| error.to_string())
}

impl ExternalAuthority for Authority {
    fn remembered(&self, user: &str, password: &[u8]) -> Option<ExternalLogin> {
        self.parts.remembered(user, password)
    }

    fn check(&self, attempt: PasswordAttempt, done: LoginDone) {
        let parts = self.parts.clone();
        let admitted = parts.waiting.lock().enter(attempt.address, &attempt.user);
        let Some(turn) = admitted else {
            return done(Err(ExternalRefusal::Busy));
        };
        let admitted = Admitted {
            parts: parts.clone(),
            address: attempt.address,
            user: attempt.user.clone(),
        };
        let answer = Answer(Some(done));
        self.thread.spawn(async move {
            let outcome = parts.check(&attempt, turn).await;
            drop(admitted);
            answer.give(outcome);
        });
    }

    fn check_token(&self, attempt: TokenAttempt, done: LoginDone) {
        let parts = self.parts.clone();
        // The logins of one address are limited, and have one user as far as is known.
        let admitted = parts.waiting.lock().enter(attempt.address, NO_USER);
        if admitted.is_none() {
            return done(Err(ExternalRefusal::Busy));
        }
        let admitted = Admitted {
            parts: parts.clone(),
            address: attempt.address,
            user: NO_USER.to_owned(),
        };
        let answer = Answer(Some(done));
        self.thread.spawn(async move {
            let outcome = parts.check_token(&attempt).await;
            drop(admitted);
            answer.give(outcome);
        });
    }

    fn try_settings(&self, settings: LdapSettings, trial: LdapTrial, done: TrialDone) {
        self.thread.spawn(async move {
            done(try_settings(settings, trial).await);
        });
    }

    fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        self.parts.figures.stats(each);
        each("ldap_waiting", &self.parts.waiting.lock().len().to_string());
        each(
            "ldap_cached_users",
            &self.parts.cache.lock().len().to_string(),
        );
    }
}
