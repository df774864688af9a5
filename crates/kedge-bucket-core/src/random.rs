//! Random numbers, and the uuids of branches of history.

use kedge_types::{VbId, VbUuid};

/// Uuids have 48 bits, as some clients keep them in floating-point numbers.
const UUID_MASK: u64 = (1 << 48) - 1;

/// Returns the uuid of a vBucket's first branch. It follows from the bucket's, so an empty bucket needs no record in its
/// log, as long as it is stopped cleanly.
///
/// # Panics
/// Never.
#[must_use]
pub fn first_uuid(bucket: [u8; 16], vb: VbId) -> VbUuid {
    let (high, low) = bucket.split_at(8);
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("8 bytes"));
    let mixed = (word(high) ^ u64::from(vb.get()).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        ^ word(low);
    uuid(mixed)
}

/// Returns a uuid for a branch that begins now.
#[must_use]
pub fn new_uuid() -> VbUuid {
    uuid(random_u64())
}

fn uuid(number: u64) -> VbUuid {
    VbUuid(((number ^ (number >> 32)) & UUID_MASK).max(1))
}

/// Returns a random number of the operating system.
///
/// # Panics
/// If the system has no random bytes.
#[must_use]
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u64::from_ne_bytes(bytes)
}
