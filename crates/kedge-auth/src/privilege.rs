//! Privileges, and sets of them.

/// A right to do one kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Privilege {
    /// Select a bucket, see its settings and cluster map. Without a bucket: connect at all.
    Access,
    /// Read documents and scan them.
    Read,
    /// Add documents that do not exist.
    Insert,
    /// Create and change documents.
    Upsert,
    /// Delete documents.
    Delete,
    /// Write documents with the CAS, revision and expiry of another cluster.
    WriteMeta,
    /// Read the extended attributes whose names begin with `_`.
    ReadSystem,
    /// Write the extended attributes whose names begin with `_`.
    WriteSystem,
    /// Follow the changes of a bucket's documents (DCP).
    Stream,
    /// Statistics, of a bucket or (without a bucket) of the node.
    Stats,
    /// Delete all documents of a bucket at once.
    Flush,
    /// Change a bucket: its settings, vBuckets, compaction.
    Manage,
    /// Make, change and drop scopes and collections.
    Collections,
    /// See the settings of the cluster.
    Inspect,
    /// Change the settings of the cluster, and which of its nodes serve.
    Settings,
    /// Make and remove buckets.
    Buckets,
    /// See the users and groups.
    InspectUsers,
    /// Change users and groups without roles that allow to grant rights.
    Users,
    /// Everything else.
    Admin,
}

impl Privilege {
    /// Every privilege, in the order of its number.
    pub const ALL: [Self; 19] = [
        Self::Access,
        Self::Read,
        Self::Insert,
        Self::Upsert,
        Self::Delete,
        Self::WriteMeta,
        Self::ReadSystem,
        Self::WriteSystem,
        Self::Stream,
        Self::Stats,
        Self::Flush,
        Self::Manage,
        Self::Collections,
        Self::Inspect,
        Self::Settings,
        Self::Buckets,
        Self::InspectUsers,
        Self::Users,
        Self::Admin,
    ];

    /// Returns the privilege with this name.
    #[must_use]
    pub fn with_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    /// Returns the name, as in `read`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Read => "read",
            Self::Insert => "insert",
            Self::Upsert => "upsert",
            Self::Delete => "delete",
            Self::WriteMeta => "write!meta",
            Self::ReadSystem => "xattr!read",
            Self::WriteSystem => "xattr!write",
            Self::Stream => "stream",
            Self::Stats => "stats!read",
            Self::Flush => "flush",
            Self::Manage => "manage",
            Self::Collections => "collections!write",
            Self::Inspect => "settings!read",
            Self::Settings => "settings!write",
            Self::Buckets => "buckets!create",
            Self::InspectUsers => "users!read",
            Self::Users => "users!write",
            Self::Admin => "admin",
        }
    }
}

const _: () = {
    let mut at = 0;
    while at < Privilege::ALL.len() {
        assert!(Privilege::ALL[at] as usize == at && at < 32);
        at += 1;
    }
};

/// A set of privileges. A lookup is one AND.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Privileges(u32);

impl Privileges {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The full set.
    pub const ALL: Self = Self::of(&Privilege::ALL);

    /// Returns the set of the given privileges.
    #[must_use]
    pub const fn of(list: &[Privilege]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < list.len() {
            bits |= 1 << list[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the privileges that `other` does not have.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether all of `needed` are in the set.
    #[must_use]
    #[inline]
    pub const fn allow(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the privileges of the set.
    pub fn iter(self) -> impl Iterator<Item = Privilege> {
        Privilege::ALL
            .into_iter()
            .filter(move |privilege| self.allow(Self::of(&[*privilege])))
    }
}
