//! Logins that take long.
//!
//! SASL PLAIN costs a PBKDF2, which is milliseconds: too long for an event loop that other clients wait for. One
//! thread works such logins out; SCRAM, whose hard work is the client's, stays in the event loop.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use kedge_auth::{Mechanism, ServerSession, UserStore, random_nonce};
use kedge_bucket::Cookie;
use kedge_types::Status;
use zeroize::Zeroizing;

use crate::inbox::{FrontEnds, Login, Message};

/// Logins that may wait; one more is told to try again.
const QUEUE_MAX: usize = 1_024;

/// A login to be worked out.
pub(crate) struct LoginJob {
    pub(crate) cookie: Cookie,
    pub(crate) users: Arc<UserStore>,
    pub(crate) mechanism: Mechanism,
    pub(crate) message: Zeroizing<Vec<u8>>,
}

/// The way to the thread.
#[derive(Clone)]
pub(crate) struct Logins(SyncSender<LoginJob>);

impl Logins {
    /// Starts the thread "kedge-login". It ends when the last [`Logins`] is dropped.
    pub(crate) fn start(front_ends: &Arc<FrontEnds>) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (sender, jobs) = sync_channel(QUEUE_MAX);
        let front_ends = Arc::downgrade(front_ends);
        let thread = std::thread::Builder::new()
            .name("kedge-login".to_owned())
            .spawn(move || work(&jobs, &front_ends))?;
        Ok((Self(sender), thread))
    }

    /// Hands a login over; its end comes as a [`Message::LoggedIn`].
    ///
    /// # Errors
    /// `TemporaryFailure` when too many wait, or the server stops.
    pub(crate) fn submit(&self, job: LoginJob) -> Result<(), Status> {
        self.0.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) | TrySendError::Disconnected(_) => Status::TemporaryFailure,
        })
    }
}

fn work(jobs: &Receiver<LoginJob>, front_ends: &Weak<FrontEnds>) {
    for job in jobs {
        let (session, step) =
            ServerSession::start(&job.users, job.mechanism, &job.message, random_nonce);
        let Some(front_ends) = front_ends.upgrade() else {
            return;
        };
        let thread = crate::cookie::ConnectionId::of(job.cookie).0.thread;
        front_ends.send(
            thread,
            Message::LoggedIn(job.cookie, Box::new(Login { session, step })),
        );
    }
}
