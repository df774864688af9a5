//! What the user of a connection may do with its bucket, worked out once and not per command.

use kedge_auth::{Privilege, UserStore};

/// A set of things that are allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const READ: Self = Self(1);
    pub(crate) const WRITE: Self = Self(2);
    pub(crate) const STATS: Self = Self(4);
    pub(crate) const FLUSH: Self = Self(8);
    /// To see that the bucket is there, and its cluster map.
    pub(crate) const ACCESS: Self = Self(16);
    /// To change the bucket, which compaction does.
    pub(crate) const MANAGE: Self = Self(32);
    pub(crate) const ALL: Self = Self(63);

    /// What `user` may do with `bucket`, or with the node when there is none.
    pub(crate) fn of(users: &UserStore, user: &str, bucket: Option<&str>) -> Self {
        let table = [
            (Privilege::Read, Self::READ),
            (Privilege::Write, Self::WRITE),
            (Privilege::Stats, Self::STATS),
            (Privilege::Flush, Self::FLUSH),
            (Privilege::Access, Self::ACCESS),
            (Privilege::Manage, Self::MANAGE),
        ];
        let granted = table
            .iter()
            .filter(|(privilege, _)| users.allows(user, *privilege, bucket));
        granted.fold(Self::NONE, |rights, (_, right)| rights.and(*right))
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    pub(crate) const fn allow(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_become_rights() {
        let mut users = UserStore::new().unwrap();
        for (user, roles) in [
            ("root", "admin"),
            ("app", "bucket_full_access[default]"),
            ("manager", "bucket_admin[default]"),
            ("reader", "data_reader[default]"),
            ("writer", "data_writer[default]"),
            ("monitor", "data_monitoring[default]"),
        ] {
            users
                .add(user, "secret", roles.parse().unwrap(), 1)
                .unwrap();
        }
        let manager = Rights::ACCESS
            .and(Rights::STATS)
            .and(Rights::FLUSH)
            .and(Rights::MANAGE);
        for (user, bucket, expected) in [
            ("root", "default", Rights::ALL),
            ("app", "default", Rights(31)),
            ("manager", "default", manager),
            ("app", "other", Rights::NONE),
            ("reader", "default", Rights::ACCESS.and(Rights::READ)),
            ("writer", "default", Rights::ACCESS.and(Rights::WRITE)),
            ("monitor", "default", Rights::ACCESS.and(Rights::STATS)),
            ("nobody", "default", Rights::NONE),
        ] {
            assert_eq!(
                Rights::of(&users, user, Some(bucket)),
                expected,
                "{user} on {bucket}"
            );
        }
        assert!(Rights::ALL.allow(Rights::READ.and(Rights::WRITE)));
        assert!(!Rights::READ.allow(Rights::READ.and(Rights::WRITE)));
    }
}
