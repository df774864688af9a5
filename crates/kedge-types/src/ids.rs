//! Numbers that identify things: vBucket, seqno, CAS, revision, collection.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// Returns the plain number.
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
    /// The sequence number of a mutation, strictly increasing within a vBucket. 0 precedes the first mutation.
    Seqno(u64)
}
number! {
    /// The version of a document: nanoseconds of a hybrid logical clock. 0 on the wire means that no CAS was given.
    Cas(u64)
}
number! {
    /// The number of times that a document was changed, which conflict resolution compares. Files store 48 bits.
    RevSeqno(u64)
}
number! {
    /// The identity of one branch of a vBucket's history. It is never 0.
    VbUuid(u64)
}
number! {
    /// A collection of a bucket. 0 is the default collection.
    CollectionId(u32)
}

impl Seqno {
    /// Returns the next seqno.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Cas {
    /// The CAS that readers of a locked document see instead of its own.
    pub const LOCKED: Self = Self(u64::MAX);

    /// Returns `true` if the client gave no CAS (0 on the wire).
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl CollectionId {
    /// The default collection, which holds the keys of clients without collection support.
    pub const DEFAULT: Self = Self(0);
}

impl VbId {
    /// Returns the vBucket of a logical key (without collection prefix) among `vbuckets` vBuckets:
    /// `((crc32(key) >> 16) & 0x7fff) % vbuckets`, with the CRC-32 of IEEE 802.3. This is the mapping that the `CRC`
    /// hash algorithm of a cluster map names.
    ///
    /// # Panics
    /// Panics if `vbuckets` is 0.
    #[must_use]
    pub fn of_key(logical_key: &[u8], vbuckets: u16) -> Self {
        let hash = (crc32fast::hash(logical_key) >> 16) & 0x7fff;
        // The remainder is less than `vbuckets` and fits into a u16.
        Self((hash % u32::from(vbuckets)) as u16)
    }

    /// Returns the number as an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_key_agrees_with_the_vbucket_hash_of_clients() {
        // Each row: the key, then its vBucket of 1024, 128 and 64.
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
