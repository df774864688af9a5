//! The logins that wait for a directory: how many, and in which order those of one user.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use kedge_node::client_source;
use kedge_types::limits::{EXTERNAL_LOGINS_PER_ADDRESS_MAX, EXTERNAL_LOGINS_WAITING_MAX};
use tokio::sync::Mutex;

/// The turn of a login: it is held while the login is checked.
pub(crate) type UserTurn = Arc<Mutex<()>>;

/// The logins that wait or are checked.
#[derive(Default)]
pub(crate) struct Admission {
    all: usize,
    addresses: HashMap<IpAddr, usize>,
    users: HashMap<String, (UserTurn, usize)>,
}

impl Admission {
    /// Admits a login and returns the turn of its user; `None` if too many wait.
    pub(crate) fn enter(&mut self, address: IpAddr, user: &str) -> Option<UserTurn> {
        let address = client_source(address);
        let of_address = self.addresses.get(&address).copied().unwrap_or_default();
        if self.all >= EXTERNAL_LOGINS_WAITING_MAX || of_address >= EXTERNAL_LOGINS_PER_ADDRESS_MAX
        {
            return None;
        }
        self.all += 1;
        *self.addresses.entry(address).or_default() += 1;
        let (turn, count) = self.users.entry(user.to_owned()).or_default();
        *count += 1;
        Some(turn.clone())
    }

    /// Ends a login that was admitted.
    pub(crate) fn leave(&mut self, address: IpAddr, user: &str) {
        self.all -= 1;
        count_down(&mut self.addresses, &client_source(address), |count| count);
        count_down(&mut self.users, user, |(_, count)| count);
    }

    /// Returns the number of admitted logins.
    pub(crate) fn len(&self) -> usize {
        self.all
    }
}

/// Lowers a count, and removes it at zero.
fn count_down<K, Q, V>(counts: &mut HashMap<K, V>, key: &Q, count: impl Fn(&mut V) -> &mut usize)
where
    K: Hash + Eq + std::borrow::Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    let Some(value) = counts.get_mut(key) else {
        return;
    };
    let left = count(value);
    *left -= 1;
    if *left == 0 {
        counts.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    #[test]
    fn addresses_and_all_have_limits_and_leave_nothing_behind() {
        let mut admission = Admission::default();
        for n in 0..EXTERNAL_LOGINS_PER_ADDRESS_MAX {
            assert!(admission.enter(address(1), &format!("u{n}")).is_some());
        }
        assert!(admission.enter(address(1), "ada").is_none());
        let mut from = 2;
        while admission.len() < EXTERNAL_LOGINS_WAITING_MAX {
            if admission.enter(address(from), "ada").is_none() {
                from += 1;
            }
        }
        assert!(admission.enter(address(200), "ada").is_none());
        admission.leave(address(2), "ada");
        assert!(admission.enter(address(200), "ada").is_some());
        admission.leave(address(200), "ada");
        for n in 0..EXTERNAL_LOGINS_PER_ADDRESS_MAX {
            admission.leave(address(1), &format!("u{n}"));
        }
        assert!(
            !admission.users.contains_key("u1") && !admission.addresses.contains_key(&address(1))
        );
    }

    #[test]
    fn logins_of_one_user_share_a_turn() {
        let mut admission = Admission::default();
        let one = admission.enter(address(1), "ada").unwrap();
        let same = admission.enter(address(2), "ada").unwrap();
        let other = admission.enter(address(1), "bob").unwrap();
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
    }
}
