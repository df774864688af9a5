//! A master key that stays in a key management service.
//!
//! Invariants:
//! * A request that the service refuses is not repeated. One that it does not answer is: until [`Patience`] ends, and after it
//!   [`ATTEMPTS`] times.
//! * Keys are in no message.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kedge_encryption::{KEY_BYTES, MasterKey, MasterKeyError, MasterKeyInfo, Secret};
use kedge_sync::{RankedMutex, ranks::MasterKeyFailure};

use crate::service::{KeyService, ServiceError, WRAPPED_BYTES_MAX};
use crate::source::KeyRole;

/// The number of attempts of a request once the server has started.
const ATTEMPTS: u32 = 2;
/// The pause before the second attempt. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Largest length of the name of a master key.
const NAME_BYTES_MAX: usize = 2_048;

/// The time for which a service that does not answer is asked again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    until: Instant,
}

impl Patience {
    pub(crate) fn of(time: Duration) -> Self {
        Self {
            until: Instant::now() + time,
        }
    }

    /// Returns the pause after so many failed attempts, or `None` if there is to be no other.
    fn pause(self, attempts: u32, now: Instant) -> Option<Duration> {
        let pause = PAUSE_MAX.min(PAUSE * (1 << (attempts - 1).min(10)));
        let left = self.until.saturating_duration_since(now);
        match attempts < ATTEMPTS {
            true => Some(pause),
            false => (!left.is_zero()).then(|| pause.min(left)),
        }
    }
}

/// The requests to a service: repeated, counted and logged.
pub(crate) struct Requests {
    place: String,
    patience: Patience,
    made: AtomicU64,
    failed: AtomicU64,
    /// The error of the last request, if it failed.
    failure: RankedMutex<MasterKeyFailure, Option<String>>,
}

impl Requests {
    pub(crate) fn new(place: String, patience: Patience) -> Self {
        Self {
            place,
            patience,
            made: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            failure: RankedMutex::default(),
        }
    }

    /// Makes a request until it is answered, or for as long as is allowed.
    pub(crate) fn run<T>(
        &self,
        request: impl Fn() -> Result<T, ServiceError>,
    ) -> Result<T, MasterKeyError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let result = request();
            self.count(result.as_ref().err());
            let error = match result {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let pause = match &error {
                ServiceError::Unavailable(_) => self.patience.pause(attempts, Instant::now()),
                ServiceError::Refused(_) => None,
            };
            let Some(pause) = pause else {
                return Err(self.error(error));
            };
            tracing::warn!(master_key = self.place, attempts, %error, "the key management service is asked again");
            std::thread::sleep(pause);
        }
    }

    fn count(&self, error: Option<&ServiceError>) {
        self.made.fetch_add(1, Ordering::Relaxed);
        let failed = u64::from(error.is_some());
        self.failed.fetch_add(failed, Ordering::Relaxed);
        *self.failure.lock() = error.map(ToString::to_string);
    }

    /// Returns the error for keyrings.
    pub(crate) fn error(&self, error: ServiceError) -> MasterKeyError {
        let service = self.place.clone();
        match error {
            ServiceError::Unavailable(why) => MasterKeyError::Unavailable { service, why },
            ServiceError::Refused(why) => MasterKeyError::Refused { service, why },
        }
    }

    /// Adds the requests to a description.
    pub(crate) fn describe(&self, service: &dyn KeyService) -> MasterKeyInfo {
        MasterKeyInfo {
            kind: service.kind(),
            source: self.place.clone(),
            details: service.details(),
            requests: self.made.load(Ordering::Relaxed),
            failures: self.failed.load(Ordering::Relaxed),
            error: self.failure.lock().clone(),
        }
    }
}

/// A master key in a key management service.
pub struct RemoteMasterKey {
    name: String,
    service: Box<dyn KeyService>,
    requests: Requests,
}

impl RemoteMasterKey {
    /// Checks that the service encrypts and decrypts with the key. The key before is only used to decrypt, so a request is made
    /// only if its name is not known.
    ///
    /// # Errors
    /// `Unavailable`, `Refused`.
    pub(crate) fn connect(
        service: Box<dyn KeyService>,
        role: KeyRole,
        patience: Patience,
    ) -> Result<Self, MasterKeyError> {
        let requests = Requests::new(service.place(), patience);
        let name = match (role, service.known_name()) {
            (KeyRole::Previous, Some(name)) => name,
            _ => check(&*service, role, &requests)?,
        };
        if name.len() > NAME_BYTES_MAX {
            let error = ServiceError::refused("the name of the key is too long");
            return Err(requests.error(error));
        }
        Ok(Self {
            name,
            service,
            requests,
        })
    }
}

/// Encrypts a random key, and decrypts it if the service is to encrypt keys. Returns the name of the master key.
fn check(
    service: &dyn KeyService,
    role: KeyRole,
    requests: &Requests,
) -> Result<String, MasterKeyError> {
    let mut sample = Secret::new([0; KEY_BYTES]);
    getrandom::fill(&mut *sample).expect("the system has random numbers");
    let wrapped = requests.run(|| service.wrap(&sample))?;
    if role == KeyRole::Current && requests.run(|| service.unwrap(&wrapped.bytes))? != sample {
        let error = ServiceError::refused("it decrypts to something else than it was given");
        return Err(requests.error(error));
    }
    Ok(wrapped.name)
}

impl MasterKey for RemoteMasterKey {
    fn name(&self) -> &str {
        &self.name
    }

    fn wrap(&self, key: &Secret) -> Result<Vec<u8>, MasterKeyError> {
        let wrapped = self.requests.run(|| self.service.wrap(key))?;
        let refused = |why: &str| Err(self.requests.error(ServiceError::refused(why)));
        // A keyring states the name: it must be that of the key that has encrypted it.
        if wrapped.name != self.name {
            return refused("it encrypts with another key than at the start");
        }
        match wrapped.bytes.len() {
            0..=WRAPPED_BYTES_MAX => Ok(wrapped.bytes),
            _ => refused("the encrypted key is too long"),
        }
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, MasterKeyError> {
        self.requests.run(|| self.service.unwrap(wrapped))
    }

    fn info(&self) -> MasterKeyInfo {
        self.requests.describe(&*self.service)
    }
}

impl fmt::Debug for RemoteMasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteMasterKey({})", self.name)
    }
}

#[cfg(test)]
mod tests;
