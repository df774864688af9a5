use super::*;
use crate::service::Wrapped;
use kedge_encryption::MasterKeyDetail;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;

/// A service that answers with these errors first. It encrypts by inverting the bits.
#[derive(Clone, Default)]
struct Fake {
    errors: Arc<Mutex<VecDeque<ServiceError>>>,
    known_name: Option<String>,
    decrypts_wrongly: bool,
    another_name: Arc<Mutex<bool>>,
}

impl Fake {
    fn fails(&self, errors: &[ServiceError]) {
        self.errors.lock().unwrap().extend(errors.iter().cloned());
    }

    fn answer(&self) -> Result<(), ServiceError> {
        self.errors.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    fn connect(&self, role: KeyRole) -> Result<RemoteMasterKey, MasterKeyError> {
        RemoteMasterKey::connect(Box::new(self.clone()), role, Patience::of(Duration::ZERO))
    }
}

impl KeyService for Fake {
    fn place(&self) -> String {
        "fake:place".to_owned()
    }

    fn known_name(&self) -> Option<String> {
        self.known_name.clone()
    }

    fn wrap(&self, key: &Secret) -> Result<Wrapped, ServiceError> {
        self.answer()?;
        let name = match *self.another_name.lock().unwrap() {
            true => "fake:another",
            false => "fake:key",
        };
        Ok(Wrapped {
            bytes: key.iter().map(|byte| !byte).collect(),
            name: name.to_owned(),
        })
    }

    fn unwrap(&self, wrapped: &[u8]) -> Result<Secret, ServiceError> {
        self.answer()?;
        let flip = if self.decrypts_wrongly { 0xfe } else { 0xff };
        let key: Vec<u8> = wrapped.iter().map(|byte| byte ^ flip).collect();
        crate::service::secret_of(&key)
    }

    fn kind(&self) -> &'static str {
        "fake"
    }

    fn details(&self) -> Vec<(&'static str, MasterKeyDetail)> {
        Vec::new()
    }
}

fn down() -> ServiceError {
    ServiceError::unavailable("down")
}

fn refused() -> ServiceError {
    ServiceError::refused("no")
}

#[test]
fn key_is_checked_at_the_start_and_counts_its_requests() {
    let key = Fake::default().connect(KeyRole::Current).expect("it works");
    assert_eq!(key.name(), "fake:key");
    let secret = Secret::new([7; KEY_BYTES]);
    let wrapped = key.wrap(&secret).expect("wrapped");
    assert_eq!(key.unwrap(&wrapped).expect("unwrapped"), secret);
    let info = key.info();
    assert_eq!((info.kind, info.source.as_str()), ("fake", "fake:place"));
    assert_eq!((info.requests, info.failures, info.error), (4, 0, None));
    assert_eq!(format!("{key:?}"), "RemoteMasterKey(fake:key)");
}

#[test]
fn previous_key_with_a_name_needs_no_request() {
    let named = Fake {
        known_name: Some("fake:old".to_owned()),
        ..Fake::default()
    };
    named.fails(&[refused()]);
    let key = named.connect(KeyRole::Previous).expect("without a request");
    assert_eq!(key.name(), "fake:old");
    let unnamed = Fake::default();
    let key = unnamed.connect(KeyRole::Previous).expect("by a request");
    assert_eq!((key.name(), key.info().requests), ("fake:key", 1));
}

#[test]
fn request_without_an_answer_is_repeated_and_a_refused_one_is_not() {
    let fake = Fake::default();
    let key = fake.connect(KeyRole::Current).expect("it works");
    let secret = Secret::new([7; KEY_BYTES]);
    fake.fails(&[down()]);
    assert!(key.wrap(&secret).is_ok(), "the second attempt");
    fake.fails(&[down(), down()]);
    let error = key.wrap(&secret).expect_err("no third attempt");
    assert!(
        matches!(error, MasterKeyError::Unavailable { .. }),
        "{error}"
    );
    assert_eq!(error.to_string(), "fake:place is unavailable: down");
    fake.fails(&[refused()]);
    let error = key.wrap(&secret).expect_err("refused");
    assert_eq!(error.to_string(), "fake:place cannot be used: no");
    let info = key.info();
    assert_eq!((info.requests, info.failures), (2 + 2 + 2 + 1, 4));
    assert_eq!(info.error.as_deref(), Some("no"));
    assert!(key.wrap(&secret).is_ok());
    assert_eq!(key.info().error, None);
}

#[test]
fn pauses_grow_until_the_time_is_over() {
    let patience = Patience::of(Duration::from_secs(3_600));
    let now = patience.until - Duration::from_secs(3_600);
    let pauses: Vec<_> = (1..=6).filter_map(|n| patience.pause(n, now)).collect();
    assert_eq!(
        pauses,
        [100, 200, 400, 800, 1_600, 2_000].map(Duration::from_millis)
    );
    assert_eq!(patience.pause(99, now), Some(PAUSE_MAX));
    let last = patience.until - Duration::from_millis(5);
    assert_eq!(patience.pause(99, last), Some(Duration::from_millis(5)));
    assert_eq!(patience.pause(ATTEMPTS, patience.until), None);
    assert_eq!(patience.pause(1, patience.until), Some(PAUSE));
}

#[test]
fn service_that_does_not_return_the_same_key_is_refused() {
    let wrong = Fake {
        decrypts_wrongly: true,
        ..Fake::default()
    };
    let error = wrong.connect(KeyRole::Current).expect_err("another key");
    assert!(matches!(error, MasterKeyError::Refused { .. }), "{error}");
    let moved = Fake::default();
    let key = moved.connect(KeyRole::Current).expect("it works");
    *moved.another_name.lock().unwrap() = true;
    let error = key
        .wrap(&Secret::new([7; KEY_BYTES]))
        .expect_err("another key");
    assert!(
        error.to_string().contains("another key than at the start"),
        "{error}"
    );
}
