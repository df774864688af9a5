//! Tests of the limit of concurrent compactions.

use super::*;

#[test]
fn automatic_limit_is_half_of_the_threads() {
    for (writers, auxio, shards, expected) in [
        (4, 4, 2, 1),
        (4, 8, 8, 2),
        (16, 2, 16, 1),
        (128, 128, 128, 64),
        (0, 0, 1, 1),
    ] {
        assert_eq!(limit_of(writers, auxio, shards), expected);
    }
}
