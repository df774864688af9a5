//! Logins that take long.
//!
//! SASL PLAIN costs a PBKDF2, which is milliseconds: too long for an event loop that other clients wait for. A task
//! works such logins out, one after the other in the order in which they came: a flood of them takes one core at most.
//! SCRAM, whose hard work is the client's, stays in the event loop.
//!
//! Invariant: while the queue has jobs the task runs or will; who adds the first one wakes it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use kedge_auth::{Mechanism, ServerSession, UserStore, random_nonce};
use kedge_bucket::Cookie;
use kedge_executor::{Context, Executor, Next, Refused, TaskId, TaskSpec};
use kedge_types::Status;
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::front_end::abort_on_panic;
use crate::inbox::{FrontEnds, Login, Message};
use crate::pools::TaskPools;
use crate::tasks::AUTHENTICATION;

/// Logins that may wait; one more is told to try again.
const QUEUE_MAX: usize = 1_024;

/// A login to be worked out.
pub(crate) struct LoginJob {
    pub(crate) cookie: Cookie,
    pub(crate) users: Arc<UserStore>,
    pub(crate) mechanism: Mechanism,
    pub(crate) message: Zeroizing<Vec<u8>>,
}

type Queue = Mutex<VecDeque<LoginJob>>;

/// The way to the task.
pub(crate) struct Logins {
    queue: Arc<Queue>,
    executor: Executor,
    task: TaskId,
}

impl Logins {
    /// Begins the task. It ends with the executor.
    ///
    /// # Errors
    /// [`Refused`] after the executor's end.
    pub(crate) fn start(pools: &TaskPools, front_ends: &Arc<FrontEnds>) -> Result<Self, Refused> {
        let queue = Arc::new(Queue::default());
        let spec = TaskSpec {
            description: "verifies passwords of SASL PLAIN".into(),
            first_run: None,
            ..TaskSpec::new(&AUTHENTICATION, pools.owner())
        };
        let jobs = queue.clone();
        let front_ends = Arc::downgrade(front_ends);
        let executor = pools.executor().clone();
        let task = executor.schedule(spec, move |_: &Context<'_>| work_one(&jobs, &front_ends))?;
        Ok(Self {
            queue,
            executor,
            task,
        })
    }

    /// Hands a login over; its end comes as a [`Message::LoggedIn`].
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, or the server stops.
    pub(crate) fn submit(&self, job: LoginJob) -> Result<(), Status> {
        let is_first = {
            let mut queue = self.queue.lock();
            if queue.len() >= QUEUE_MAX {
                return Err(Status::TemporaryFailure);
            }
            queue.push_back(job);
            queue.len() == 1
        };
        if is_first && !self.executor.wake(self.task) {
            return Err(Status::TemporaryFailure);
        }
        Ok(())
    }
}

/// Works the next login out. The others wait in the queue: tasks that are due get a turn between them.
fn work_one(queue: &Queue, front_ends: &Weak<FrontEnds>) -> Next {
    let (job, is_last) = {
        let mut queue = queue.lock();
        let job = queue.pop_front();
        (job, queue.is_empty())
    };
    let (Some(job), Some(front_ends)) = (job, front_ends.upgrade()) else {
        return Next::Sleep;
    };
    abort_on_panic(|| work_out(&job, &front_ends));
    if is_last { Next::Sleep } else { Next::Again }
}

fn work_out(job: &LoginJob, front_ends: &FrontEnds) {
    let (session, step) =
        ServerSession::start(&job.users, job.mechanism, &job.message, random_nonce);
    let thread = crate::cookie::ConnectionId::of(job.cookie).0.thread;
    front_ends.send(
        thread,
        Message::LoggedIn(job.cookie, Box::new(Login { session, step })),
    );
}
