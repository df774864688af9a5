//! Delays after wrong passwords, which grow: the pure part. Times are arguments.
//!
//! Failures count for a user at an address, for an address, and for a user wherever they come from. The first few cost nothing.
//! After each further one, attempts are refused for a time that doubles up to a limit; the longest of the three times counts. A
//! refused attempt is not checked, and counts nowhere.
//!
//! Invariants:
//! * A table has at most [`DELAYS_MAX`] entries. When it is full, the entry with the fewest failures gives way, of these the
//!   oldest.
//! * A success forgets the failures of the user, at its address and elsewhere. Those of the address only fade: one right
//!   password must not buy more guesses at others.
//! * Reserved users are never delayed: without them the nodes of a cluster are cut off from each other, and nobody
//!   guesses a secret of 192 bits.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::Duration;

use kedge_auth::{USER_NAME_BYTES_MAX, is_reserved};

use crate::client_source;

/// The most entries of a table.
pub(super) const DELAYS_MAX: usize = 4_096;
/// The failures of a user at an address that cost nothing: those of a person, and of a client that tries each node.
pub(super) const FREE_OF_PAIR: u32 = 5;
/// The failures of an address, or of a user from anywhere, that cost nothing.
pub(super) const FREE_OF_SOURCE: u32 = 50;
/// The time after which a failure of a user at an address is forgotten.
const PAIR_FADES_MS: u64 = 60_000;
/// The time after which a failure of an address, or of a user from anywhere, is forgotten.
const SOURCE_FADES_MS: u64 = 1_000;

/// The times of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginDelays {
    /// The first delay.
    pub first: Duration,
    /// The longest one; zero for none at all.
    pub max: Duration,
}

impl LoginDelays {
    /// No delays.
    pub const NONE: Self = Self {
        first: Duration::ZERO,
        max: Duration::ZERO,
    };

    /// Returns delays that begin with 100 ms and grow up to `max`; zero for none.
    #[must_use]
    pub const fn up_to(max: Duration) -> Self {
        Self {
            first: Duration::from_millis(100),
            max,
        }
    }

    /// Returns the delay after so many failures, of which some are free.
    fn after(&self, failures: u32, free: u32) -> u64 {
        let Some(beyond) = failures.checked_sub(free + 1) else {
            return 0;
        };
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let factor = 1_u64.checked_shl(beyond).unwrap_or(u64::MAX);
        ms(self.first).saturating_mul(factor).min(ms(self.max))
    }
}

/// The failures of one source.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// The time of the last one.
    at_ms: u64,
    /// The time from which attempts are checked again.
    until_ms: u64,
}

/// The failures of all sources of one kind.
#[derive(Debug)]
struct Table<K> {
    entries: HashMap<K, Failures>,
    free: u32,
    fades_ms: u64,
}

impl<K: Eq + Hash + Clone> Table<K> {
    fn new(free: u32, fades_ms: u64) -> Self {
        Self {
            entries: HashMap::new(),
            free,
            fades_ms,
        }
    }

    /// Returns the failures that are not forgotten.
    fn count(&self, failures: &Failures, now_ms: u64) -> u32 {
        let faded = now_ms.saturating_sub(failures.at_ms) / self.fades_ms;
        failures
            .count
            .saturating_sub(u32::try_from(faded).unwrap_or(u32::MAX))
    }

    fn remaining_ms(&self, key: &K, now_ms: u64) -> u64 {
        let known = self.entries.get(key);
        known.map_or(0, |known| known.until_ms.saturating_sub(now_ms))
    }

    fn fail(&mut self, key: &K, delays: &LoginDelays, now_ms: u64) {
        let before = self.entries.get(key);
        let count = before.map_or(0, |before| self.count(before, now_ms)) + 1;
        if before.is_none() && self.entries.len() >= DELAYS_MAX {
            self.make_room(now_ms);
        }
        let failures = Failures {
            count,
            at_ms: now_ms,
            until_ms: now_ms.saturating_add(delays.after(count, self.free)),
        };
        self.entries.insert(key.clone(), failures);
    }

    fn make_room(&mut self, now_ms: u64) {
        let rank = |failures: &Failures| (self.count(failures, now_ms), failures.at_ms);
        let entries = self.entries.iter();
        let least = entries.min_by_key(|(_, failures)| rank(failures));
        if let Some(key) = least.map(|(key, _)| key.clone()) {
            self.entries.remove(&key);
        }
    }
}

/// The failures of all sources.
#[derive(Debug)]
pub(super) struct FailureTables {
    delays: LoginDelays,
    pairs: Table<(IpAddr, String)>,
    addresses: Table<IpAddr>,
    users: Table<String>,
}

impl FailureTables {
    pub(super) fn new(delays: LoginDelays) -> Self {
        Self {
            delays,
            pairs: Table::new(FREE_OF_PAIR, PAIR_FADES_MS),
            addresses: Table::new(FREE_OF_SOURCE, SOURCE_FADES_MS),
            users: Table::new(FREE_OF_SOURCE, SOURCE_FADES_MS),
        }
    }

    /// Returns the time for which attempts of a user from an address are refused; zero if they are checked.
    pub(super) fn remaining(&self, address: IpAddr, user: &str, now_ms: u64) -> Duration {
        if self.delays.max.is_zero() || is_reserved(user) {
            return Duration::ZERO;
        }
        let (address, user) = keys(address, user);
        let of_pair = self.pairs.remaining_ms(&(address, user.clone()), now_ms);
        let of_address = self.addresses.remaining_ms(&address, now_ms);
        let of_user = self.users.remaining_ms(&user, now_ms);
        Duration::from_millis(of_pair.max(of_address).max(of_user))
    }

    /// Counts a wrong password.
    pub(super) fn fail(&mut self, address: IpAddr, user: &str, now_ms: u64) {
        if self.delays.max.is_zero() {
            return;
        }
        let (address, name) = keys(address, user);
        self.addresses.fail(&address, &self.delays, now_ms);
        if !is_reserved(user) {
            let pair = (address, name);
            self.pairs.fail(&pair, &self.delays, now_ms);
            self.users.fail(&pair.1, &self.delays, now_ms);
        }
    }

    /// Forgets the failures of a user whose password was right.
    pub(super) fn succeed(&mut self, address: IpAddr, user: &str) {
        let (address, user) = keys(address, user);
        self.users.entries.remove(&user);
        self.pairs.entries.remove(&(address, user));
    }
}

/// Returns the keys of an address and a user. No user has a longer name than the limit.
fn keys(address: IpAddr, user: &str) -> (IpAddr, String) {
    let end = user.floor_char_boundary(USER_NAME_BYTES_MAX);
    (client_source(address), user[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const DELAYS: LoginDelays = LoginDelays {
        first: Duration::from_millis(100),
        max: Duration::from_millis(1_500),
    };

    fn address(n: u32) -> IpAddr {
        Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    fn ms(tables: &FailureTables, from: u32, user: &str, now_ms: u64) -> u64 {
        let remaining = tables.remaining(address(from), user, now_ms);
        u64::try_from(remaining.as_millis()).unwrap()
    }

    fn fail(tables: &mut FailureTables, from: u32, user: &str, times: u32, now_ms: u64) {
        for _ in 0..times {
            tables.fail(address(from), user, now_ms);
        }
    }

    #[test]
    fn delay_doubles_after_the_free_failures_up_to_the_limit() {
        let mut tables = FailureTables::new(DELAYS);
        fail(&mut tables, 1, "ada", FREE_OF_PAIR, 0);
        assert_eq!(ms(&tables, 1, "ada", 0), 0);
        let mut now = 0;
        for expected in [100, 200, 400, 800, 1_500, 1_500] {
            fail(&mut tables, 1, "ada", 1, now);
            assert_eq!(ms(&tables, 1, "ada", now), expected);
            assert_eq!(ms(&tables, 1, "ada", now + expected - 1), 1);
            now += expected;
            assert_eq!(ms(&tables, 1, "ada", now), 0);
        }
        // Others at this address, and this user at others, are not concerned.
        fail(&mut tables, 1, "ada", 1, now);
        assert_eq!(
            (ms(&tables, 1, "bob", now), ms(&tables, 2, "ada", now)),
            (0, 0)
        );
    }

    #[test]
    fn success_forgets_failures_and_time_lets_them_fade() {
        let mut tables = FailureTables::new(DELAYS);
        fail(&mut tables, 1, "ada", FREE_OF_PAIR + 3, 0);
        tables.succeed(address(1), "ada");
        assert_eq!(ms(&tables, 1, "ada", 0), 0);
        fail(&mut tables, 1, "ada", FREE_OF_PAIR, 0);
        assert_eq!(ms(&tables, 1, "ada", 0), 0, "all are free again");
        // After two minutes two of them are forgotten.
        fail(&mut tables, 1, "ada", 2, 2 * PAIR_FADES_MS);
        assert_eq!(ms(&tables, 1, "ada", 2 * PAIR_FADES_MS), 0);
        fail(&mut tables, 1, "ada", 1, 2 * PAIR_FADES_MS);
        assert_eq!(ms(&tables, 1, "ada", 2 * PAIR_FADES_MS), 100);
    }

    #[test]
    fn address_that_tries_many_users_is_delayed_for_all_and_a_success_does_not_help() {
        let mut tables = FailureTables::new(DELAYS);
        for user in 0..=FREE_OF_SOURCE {
            fail(&mut tables, 1, &format!("user{user}"), 1, 0);
        }
        assert_eq!(
            (ms(&tables, 1, "ada", 0), ms(&tables, 2, "ada", 0)),
            (100, 0)
        );
        tables.succeed(address(1), "ada");
        assert_eq!(ms(&tables, 1, "bob", 0), 100);
        // One failure a second is forgotten.
        fail(&mut tables, 1, "user", 1, SOURCE_FADES_MS);
        assert_eq!(ms(&tables, 1, "ada", SOURCE_FADES_MS), 100);
        assert_eq!(ms(&tables, 1, "ada", SOURCE_FADES_MS + 100), 0);
    }

    #[test]
    fn user_that_many_addresses_try_is_delayed_everywhere() {
        let mut tables = FailureTables::new(DELAYS);
        for from in 0..=FREE_OF_SOURCE {
            fail(&mut tables, from, "ada", 1, 0);
        }
        assert_eq!(
            (ms(&tables, 999, "ada", 0), ms(&tables, 999, "bob", 0)),
            (100, 0)
        );
        tables.succeed(address(3), "ada");
        assert_eq!(ms(&tables, 999, "ada", 0), 0);
    }

    #[test]
    fn reserved_users_are_not_delayed_and_count_for_their_address() {
        let mut tables = FailureTables::new(DELAYS);
        fail(&mut tables, 1, "kedge.cluster", 200, 0);
        assert_eq!(ms(&tables, 1, "kedge.cluster", 0), 0);
        assert_eq!(
            (ms(&tables, 1, "ada", 0), ms(&tables, 2, "ada", 0)),
            (1_500, 0)
        );
    }

    #[test]
    fn limit_of_zero_turns_delays_off() {
        let mut tables = FailureTables::new(LoginDelays::up_to(Duration::ZERO));
        fail(&mut tables, 1, "ada", 1_000, 0);
        assert_eq!(ms(&tables, 1, "ada", 0), 0);
        assert!(tables.pairs.entries.is_empty());
    }

    #[test]
    fn networks_of_ipv6_and_long_names_are_one_source() {
        let mut tables = FailureTables::new(DELAYS);
        let long = "x".repeat(1_000);
        for host in 0..=u128::from(FREE_OF_PAIR) {
            let from = Ipv6Addr::from_bits(0x2001_0db8 << 96 | host);
            tables.fail(from.into(), &long, 0);
        }
        let other = Ipv6Addr::from_bits(0x2001_0db8 << 96 | 0xffff).into();
        assert_eq!(tables.remaining(other, &long[1..], 0), DELAYS.first);
    }

    #[test]
    fn full_table_keeps_the_entries_with_most_failures() {
        let mut tables = FailureTables::new(DELAYS);
        fail(&mut tables, 1, "ada", FREE_OF_PAIR + 4, 0);
        for n in 0..DELAYS_MAX + 100 {
            let from = u32::try_from(n).unwrap() + 10;
            fail(&mut tables, from, &format!("user{n}"), 1, 1);
        }
        assert_eq!(tables.pairs.entries.len(), DELAYS_MAX);
        assert_eq!(tables.addresses.entries.len(), DELAYS_MAX);
        assert_eq!(tables.users.entries.len(), DELAYS_MAX);
        assert_eq!(ms(&tables, 1, "ada", 1), 799);
    }
}
