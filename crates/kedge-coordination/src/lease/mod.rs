//! Leases: keys that their holders rewrite by transactions, as in Kubernetes' leader election. Observers measure with
//! their own clocks. All of it is state machines: time is an argument, and transactions are results.
//!
//! # The inequality
//!
//! `T` is the time of a lease, ρ the [`DriftBound`] of every clock, and `P` the pause of a holder that is tolerated.
//!
//! A holder reads its clock, `s`, and sends a transaction that rewrites its key and compares it with the holder's last
//! revision. If that succeeds, the holder serves while its clock shows less than
//!
//! ```text
//! s + T · (1 − ρ) − P
//! ```
//!
//! An observer that has received the new revision of the key when its own clock showed `r` waits until that shows
//! `r + T · (1 + ρ)`. Then it may depose the holder, by one transaction that compares the key with that revision, deletes
//! it, and makes the change that takes the holder's place.
//!
//! The observer received the revision after the holder had read `s`. Between these moments and the ends of both waits the
//! holder's clock advances by at least `T · (1 − ρ)` while the true time `T` passes, and the observer's by at most
//! `T · (1 + ρ)`. So the holder's time has ended, and `P` has passed since, before the deposing transaction is made. A
//! renewal that the observer has not seen makes that transaction fail, however late messages are, and a deposed holder's
//! renewal fails by its own compare.
//!
//! `P` covers the time between a look at the clock and the end of what was allowed by it. A holder that can be stopped for
//! longer, as by SIGSTOP or a hypervisor, has to be ended at `s + T · (1 − ρ)` by something that it cannot delay.
//!
//! A holder can renew in time only if
//!
//! ```text
//! renewal interval + request timeout + P < T · (1 − ρ)
//! ```
//!
//! which [`LeaseTiming::new`] checks.
//!
//! # Rules for records
//!
//! * The record states the lease time, and observers wait for the time that it states: a holder may change it at any renewal.
//! * A record is deleted only by a transaction that compares it with a revision that has lapsed. A key without a record
//!   has therefore no holder that serves, unless the store was restored from a backup that did not have the record. So observers
//!   give an absent record the time of a lease, too, from when they first saw that it is absent.
//! * Another process of the holder's name replaces the record only if the holder has ended, or has lapsed with nobody who could
//!   have promised, see [`LeaseHolder`].
//! * Any other end of a lease is a record that says so, see [`LeaseRecord::revoked`]. It lapses as a renewal does.

mod failsafe;
mod holder;
mod observer;
mod office;
mod record;
mod timing;

pub use failsafe::{PromiseRefused, PromiseRequest, PromiseRound, Promises};
pub use holder::{LeaseEvent, LeaseHolder, Occupant};
pub use observer::{LeaseObserver, LeaseState};
pub use office::{Office, OfficeHolder, OfficeStep};
pub use record::LeaseRecord;
pub use timing::{LEASE_TIME_MAX, LEASE_TIME_MIN, LeaseTiming, TOLERATED_PAUSE, TimingError};
