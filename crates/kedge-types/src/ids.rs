//! Numbers that name things: vBucket, seqno, CAS, revision, collection.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(number: $inner) -> Self {
                Self(number)
            }
        }
    };
}

number! {
    /// A vBucket: one of the N hash partitions of a bucket.
    VbId(u16)
}
number! {
    /// Per-vBucket, strictly increasing number of a mutation. 0 is "before the first".
    Seqno(u64)
}
number! {
    /// Version of a document: nanoseconds of a hybrid logical clock. 0 on the wire is "not given".
    Cas(u64)
}
number! {
    /// How many times a document was changed; conflict resolution compares it. 48 bits are stored.
    RevSeqno(u64)
}
number! {
    /// Identity of one branch of a vBucket's history, never 0.
    VbUuid(u64)
}
number! {
    /// A collection of a bucket; 0 is the default collection.
    CollectionId(u32)
}

impl Seqno {
    /// The seqno after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Cas {
    /// What a reader sees of a locked document instead of its CAS.
    pub const LOCKED: Self = Self(u64::MAX);

    /// Whether the client gave none (0 on the wire).
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl CollectionId {
    /// The default collection, where keys of clients without collections live.
    pub const DEFAULT: Self = Self(0);
}

impl VbId {
    /// The vBucket of a logical key (without collection prefix) among `vbuckets` vBuckets:
    /// `((crc32(key) >> 16) & 0x7fff) % vbuckets`, CRC-32 as in IEEE 802.3, the mapping that the `CRC`
    /// hash algorithm of a cluster map names.
    ///
    /// # Panics
    /// If `vbuckets` is 0.
    #[must_use]
    pub fn of_key(logical_key: &[u8], vbuckets: u16) -> Self {
        let hash = (crc32fast::hash(logical_key) >> 16) & 0x7fff;
        // The remainder is smaller than a u16, so it fits.
        Self((hash % u32::from(vbuckets)) as u16)
    }

    /// The number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_map_to_the_vbuckets_clients_compute() {
        // key, then its vBucket of 1024, 128, 64.
        for (key, expected) in [
            ("a", [183, 55, 55]),
            ("foo", [115, 115, 51]),
            ("hello", [528, 16, 16]),
            ("key1", [92, 92, 28]),
            ("user::1001", [300, 44, 44]),
            ("airline_10", [361, 105, 41]),
        ] {
            let got = [1024, 128, 64].map(|n| VbId::of_key(key.as_bytes(), n).get());
            assert_eq!(got, expected, "{key}");
        }
        assert_eq!(VbId::of_key(b"anything", 1), VbId(0));
    }
}
