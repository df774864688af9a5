//! Slow password checks.
//!
//! SASL PLAIN, and Basic authentication of management, cost an argon2id hash, which takes tens of milliseconds and megabytes: too long for an event
//! loop with other clients. A task executes such checks one after the other, so that a flood of them uses at most one
//! core and the memory of one hash. Addresses take turns, and so do the users of an address ([`fair`]): a client that tries many passwords waits
//! for itself. A password that was verified before needs no check ([`kedge_auth::UserStore::is_verified`]), and SCRAM,
//! whose expensive part is the client's, stays in the event loop.
//!
//! After wrong passwords, attempts are refused for a time that grows ([`delays`], [`LoginGuard`]), also those with SCRAM.
//!
//! Invariant: while the queue has jobs, the task runs or is scheduled; the first added job wakes it.

mod delays;
mod fair;
mod guard;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use kedge_auth::UserStore;
use kedge_executor::{Executor, Next, ScheduleError, TaskContext, TaskId, TaskSpec};
use kedge_sync::{RankedMutex, ranks::PasswordQueue};
use kedge_types::limits::{
    PASSWORD_CHECKS_PER_ADDRESS_MAX, PASSWORD_CHECKS_PER_USER_MAX, PASSWORD_CHECKS_WAITING_MAX,
};
use kedge_types::{Clock, SystemClock};

pub use self::delays::LoginDelays;
use self::fair::{FairQueue, QueueLimits};
pub use self::guard::LoginGuard;
use crate::abort_on_panic;
use crate::external::{ExternalAuthority, ExternalLogin};
use crate::pools::TaskPools;
use crate::tasks::AUTHENTICATION;

/// The outcome of queueing a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckTurn {
    /// It is its turn: the check is executed in the call.
    Come,
    /// Too many wait, or the server stops: the client is asked to try again.
    Never,
}

/// A check; called once in either case.
pub type Check = Box<dyn FnOnce(CheckTurn) + Send>;

type Queue = RankedMutex<PasswordQueue, FairQueue<Check>>;

const LIMITS: QueueLimits = QueueLimits {
    all: PASSWORD_CHECKS_WAITING_MAX,
    of_address: PASSWORD_CHECKS_PER_ADDRESS_MAX,
    of_user: PASSWORD_CHECKS_PER_USER_MAX,
};

/// The queue of waiting checks, and the task that executes them.
pub struct PasswordChecks {
    queue: Arc<Queue>,
    executor: Executor,
    task: TaskId,
    guard: Arc<LoginGuard>,
    return_memory: Arc<OnceLock<fn()>>,
    external: Option<Arc<dyn ExternalAuthority>>,
}

impl std::fmt::Debug for PasswordChecks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PasswordChecks").finish_non_exhaustive()
    }
}

impl PasswordChecks {
    /// Starts the task. It ends with the executor. Wrong passwords cause no delays, see [`Self::with_delays`].
    ///
    /// # Errors
    /// [`ScheduleError`] after the executor's end.
    pub fn start(pools: &TaskPools) -> Result<Self, ScheduleError> {
        let queue = Arc::new(RankedMutex::new(FairQueue::new(LIMITS)));
        let spec = TaskSpec {
            description: "verifies passwords of SASL PLAIN and of management".into(),
            first_run: None,
            ..TaskSpec::new(&AUTHENTICATION, pools.owner())
        };
        let checks = queue.clone();
        let return_memory = Arc::new(OnceLock::new());
        let returns = Arc::clone(&return_memory);
        let executor = pools.executor().clone();
        let task =
            executor.schedule(spec, move |_: &TaskContext<'_>| work_one(&checks, &returns))?;
        Ok(Self {
            queue,
            executor,
            task,
            return_memory,
            external: None,
            guard: Arc::new(LoginGuard::new(
                LoginDelays::NONE,
                Arc::new(SystemClock::new()),
            )),
        })
    }

    /// Sets the delays after wrong passwords.
    #[must_use]
    pub fn with_delays(self, delays: LoginDelays, clock: Arc<dyn Clock>) -> Self {
        Self {
            guard: Arc::new(LoginGuard::new(delays, clock)),
            ..self
        }
    }

    /// Sets the function that returns the unused memory of the calling thread to the system. It is called when no more checks wait: a
    /// hash takes megabytes, which the allocator would keep.
    #[must_use]
    pub fn with_memory_return(self, return_memory: fn()) -> Self {
        self.return_memory.get_or_init(|| return_memory);
        self
    }

    /// Sets the authority of external users.
    #[must_use]
    pub fn with_external(self, authority: Arc<dyn ExternalAuthority>) -> Self {
        Self {
            external: Some(authority),
            ..self
        }
    }

    /// Returns the authority of external users.
    #[must_use]
    pub fn external(&self) -> Option<&Arc<dyn ExternalAuthority>> {
        self.external.as_ref()
    }

    /// Returns the authority that checks the password of this user, if it is none of these.
    #[must_use]
    pub fn authority_of(&self, users: &UserStore, user: &str) -> Option<&dyn ExternalAuthority> {
        let authority = self.external.as_deref()?;
        users.asks_directory(user).then_some(authority)
    }

    /// Returns the login of an external user that was verified recently with this password.
    #[must_use]
    pub fn remembered(
        &self,
        users: &UserStore,
        user: &str,
        password: &[u8],
    ) -> Option<ExternalLogin> {
        self.authority_of(users, user)?.remembered(user, password)
    }

    /// Returns the judge of attempts that come too soon after wrong passwords.
    #[must_use]
    pub fn guard(&self) -> &Arc<LoginGuard> {
        &self.guard
    }

    /// Queues the check of a password that came from `address` for `user`.
    ///
    /// If too many wait, this one or one of the client with most is called with [`CheckTurn::Never`], on the calling
    /// thread.
    pub fn submit(&self, address: IpAddr, user: &str, check: Check) {
        let (is_first, displaced) = {
            let mut queue = self.queue.lock();
            let displaced = queue.push(address, user, check);
            (queue.len() == 1 && displaced.is_none(), displaced)
        };
        if let Some(displaced) = displaced {
            displaced(CheckTurn::Never);
        }
        if is_first && !self.executor.wake(self.task) {
            // The server stops: checks that were added in the meantime are called, too.
            while let Some(check) = self.pop().0 {
                check(CheckTurn::Never);
            }
        }
    }

    /// Returns the number of waiting checks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.lock().len()
    }

    fn pop(&self) -> (Option<Check>, bool) {
        pop(&self.queue)
    }
}

fn pop(queue: &Queue) -> (Option<Check>, bool) {
    let mut queue = queue.lock();
    let check = queue.pop();
    (check, queue.len() == 0)
}

/// Executes the next check. The others stay in the queue, so that other due tasks run in between.
fn work_one(queue: &Queue, return_memory: &OnceLock<fn()>) -> Next {
    let (check, is_last) = pop(queue);
    let Some(check) = check else {
        return Next::Sleep;
    };
    abort_on_panic(|| check(CheckTurn::Come));
    if !is_last {
        return Next::Again;
    }
    if let Some(return_memory) = return_memory.get() {
        return_memory();
    }
    Next::Sleep
}
