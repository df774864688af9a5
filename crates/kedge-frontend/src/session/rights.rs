//! Sets of privileges, and the checks that commands make with them. See [`EffectivePrivileges`](super::EffectivePrivileges).

use std::sync::Arc;

use kedge_auth::{Privilege, Privileges, Roles};
use kedge_bucket::Bucket;
use kedge_protocol::binary::Feature;
use kedge_types::{CollectionId, Status};

use super::{CommandFailure, Session};

/// A set of privileges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(pub(super) Privileges);

const fn one(privilege: Privilege) -> Rights {
    Rights(Privileges::of(&[privilege]))
}

impl Rights {
    pub(crate) const NONE: Self = Self(Privileges::NONE);
    pub(crate) const READ: Self = one(Privilege::Read);
    /// To add documents that do not exist.
    pub(crate) const INSERT: Self = one(Privilege::Insert);
    /// To create and change documents.
    pub(crate) const UPSERT: Self = one(Privilege::Upsert);
    pub(crate) const DELETE: Self = one(Privilege::Delete);
    /// To write documents with metadata of another cluster.
    pub(crate) const WRITE_META: Self = one(Privilege::WriteMeta);
    /// To read system attributes, whose names begin with `_`.
    pub(crate) const READ_SYSTEM: Self = one(Privilege::ReadSystem);
    /// To write system attributes.
    pub(crate) const WRITE_SYSTEM: Self = one(Privilege::WriteSystem);
    pub(crate) const STATS: Self = one(Privilege::Stats);
    pub(crate) const FLUSH: Self = one(Privilege::Flush);
    /// To see the bucket and its cluster map.
    pub(crate) const ACCESS: Self = one(Privilege::Access);
    /// To manage the bucket, for example to compact it.
    pub(crate) const MANAGE: Self = one(Privilege::Manage);
    /// To open DCP streams.
    pub(crate) const STREAM: Self = one(Privilege::Stream);
    pub(crate) const ALL: Self = Self(Privileges::ALL);

    /// The privileges of all clients of the memcached port in its bucket, which memcached's commands need. FLUSH also
    /// checks that the port allows it.
    pub(crate) const MEMCACHED: Self = Self::ACCESS
        .and(Self::READ)
        .and(Self::INSERT)
        .and(Self::UPSERT)
        .and(Self::DELETE)
        .and(Self::READ_SYSTEM)
        .and(Self::STATS)
        .and(Self::FLUSH);

    /// The privileges that roles give in all of `bucket`, or on the node when there is none.
    pub(crate) fn of(roles: &Roles, bucket: Option<&str>) -> Self {
        Self(roles.privileges(bucket))
    }

    /// The names of its privileges.
    #[cfg(test)]
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(Privilege::name)
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0.and(other.0))
    }

    #[inline]
    pub(crate) const fn allow(self, needed: Self) -> bool {
        self.0.allow(needed.0)
    }

    /// The failure of a command that needs more privileges.
    #[cold]
    pub(crate) fn denied(self, needed: Self) -> CommandFailure {
        let missing = needed.0.without(self.0);
        let context = match missing.iter().next() {
            Some(Privilege::Read) => "the user's roles do not allow reading here",
            Some(Privilege::Insert) => "the user's roles do not allow adding documents here",
            Some(Privilege::Upsert) => "the user's roles do not allow writing here",
            Some(Privilege::Delete) => "the user's roles do not allow deleting here",
            Some(Privilege::WriteMeta) => "the user's roles do not allow writing metadata here",
            Some(Privilege::Stream) => "the user's roles do not allow following changes here",
            Some(Privilege::Stats) => "the user's roles do not allow reading statistics here",
            Some(Privilege::Flush) => "the user's roles do not allow flushing the bucket",
            Some(Privilege::Manage) => "the user's roles do not allow managing the bucket",
            Some(Privilege::Collections) => "the user's roles do not allow managing collections",
            Some(Privilege::ReadSystem) => {
                "the user's roles do not allow reading attributes of the system here"
            }
            Some(Privilege::WriteSystem) => {
                "the user's roles do not allow writing attributes of the system here"
            }
            _ => "the user's roles do not allow this",
        };
        CommandFailure::new(Status::AccessDenied, context)
    }
}

impl Session {
    /// The selected bucket, if the user has these privileges in all of it.
    ///
    /// # Errors
    /// `NoBucket`, `AccessDenied`.
    #[inline]
    pub(crate) fn bucket(&self, needed: Rights) -> Result<&Arc<Bucket>, CommandFailure> {
        let bucket = self.selected()?;
        if self.privileges.allow(needed) {
            Ok(bucket)
        } else {
            Err(self.privileges.rights().denied(needed))
        }
    }

    /// The selected bucket, if the user has these privileges in at least a part of it.
    ///
    /// # Errors
    /// `NoBucket`, `AccessDenied`.
    pub(crate) fn bucket_somewhere(&self, needed: Rights) -> Result<&Arc<Bucket>, CommandFailure> {
        let bucket = self.selected()?;
        if self.privileges.allow_somewhere(needed) {
            Ok(bucket)
        } else {
            Err(self.privileges.rights().denied(needed))
        }
    }

    /// The selected bucket, if the user has these privileges in the collection.
    ///
    /// # Errors
    /// `NoBucket`, `AccessDenied`; `UnknownCollection` for a user without any privilege there, who must not learn that the
    /// collection exists.
    #[inline]
    pub(crate) fn collection(
        &self,
        collection: CollectionId,
        needed: Rights,
    ) -> Result<&Arc<Bucket>, CommandFailure> {
        let bucket = self.selected()?;
        if !self.privileges.allow(needed) {
            self.check_collection(bucket, collection, needed)?;
        }
        Ok(bucket)
    }

    /// The selected bucket.
    ///
    /// # Errors
    /// `NoBucket`.
    #[inline]
    pub(crate) fn selected(&self) -> Result<&Arc<Bucket>, CommandFailure> {
        self.bucket.as_ref().ok_or(CommandFailure::new(
            Status::NoBucket,
            "no bucket is selected, or it was dropped",
        ))
    }

    /// Checks the privileges in a collection, where those in the whole bucket do not suffice.
    #[cold]
    fn check_collection(
        &self,
        bucket: &Bucket,
        id: CollectionId,
        needed: Rights,
    ) -> Result<(), CommandFailure> {
        let manifest = bucket.collections().manifest();
        let held = match manifest.collection(id) {
            Some((scope, collection)) => {
                self.privileges.in_collection(&scope.name, &collection.name)
            }
            None => self.privileges.rights(),
        };
        if held.allow(needed) {
            return Ok(());
        }
        // A role in another part of the bucket gives `ACCESS` alone. A user without any role lacks even that.
        if held == Rights::ACCESS && self.protocol.features.contains(Feature::Collections) {
            return Err(CommandFailure::HIDDEN);
        }
        Err(held.denied(needed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_map_to_rights() {
        let mut users = kedge_auth::UserStore::new().unwrap();
        for (user, roles) in [
            ("root", "admin"),
            ("app", "bucket_full_access[default]"),
            ("manager", "bucket_admin[default]"),
            ("reader", "data_reader[default]"),
            ("writer", "data_writer[default]"),
            ("monitor", "data_monitoring[default]"),
            ("narrow", "data_reader[default:_default]"),
        ] {
            users
                .add(user, "secret", roles.parse().unwrap(), 1)
                .unwrap();
        }
        let rights = |list: &[Rights]| {
            list.iter()
                .fold(Rights::ACCESS, |rights, it| rights.and(*it))
        };
        let app = rights(&[
            Rights::READ,
            Rights::INSERT,
            Rights::UPSERT,
            Rights::DELETE,
            Rights::WRITE_META,
            Rights::STATS,
            Rights::FLUSH,
            Rights::STREAM,
            Rights::READ_SYSTEM,
            Rights::WRITE_SYSTEM,
        ]);
        let manager = rights(&[
            Rights::STATS,
            Rights::FLUSH,
            Rights::MANAGE,
            one(Privilege::Collections),
        ]);
        for (user, bucket, expected) in [
            ("root", "default", Rights::ALL),
            ("app", "default", app),
            ("manager", "default", manager),
            ("app", "other", Rights::NONE),
            (
                "reader",
                "default",
                rights(&[Rights::READ, Rights::READ_SYSTEM]),
            ),
            (
                "writer",
                "default",
                rights(&[
                    Rights::INSERT,
                    Rights::UPSERT,
                    Rights::DELETE,
                    Rights::WRITE_SYSTEM,
                ]),
            ),
            ("monitor", "default", rights(&[Rights::STATS])),
            ("narrow", "default", Rights::ACCESS),
            ("nobody", "default", Rights::NONE),
        ] {
            assert_eq!(
                Rights::of(&users.roles_of(user), Some(bucket)),
                expected,
                "{user} on {bucket}"
            );
        }
        assert!(Rights::ALL.allow(Rights::READ.and(Rights::UPSERT)));
        assert!(!Rights::READ.allow(Rights::READ.and(Rights::UPSERT)));
    }
}
