//! The commit log on a simulated disk that crashes, fails and fills up. Each test runs with plain and with encrypted
//! segments.
#![expect(
    clippy::duplicate_mod,
    reason = "the same tests run with plain and with encrypted segments"
)]

#[path = "."]
mod plain {
    pub(crate) const IS_ENCRYPTED: bool = false;

    mod crash;
    mod damage;
    mod faults;
    mod hostile;
    mod round_trip;
    mod segments;
    mod support;
}

#[path = "."]
mod encrypted {
    pub(crate) const IS_ENCRYPTED: bool = true;

    mod crash;
    mod damage;
    mod faults;
    mod hostile;
    mod round_trip;
    mod segments;
    pub(crate) mod support;
}

mod encryption;
mod nonces;
