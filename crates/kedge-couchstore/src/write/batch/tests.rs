use proptest::prelude::*;

use super::*;

fn mutation(key: &[u8], seqno: u64) -> Mutation<'_> {
    Mutation {
        key,
        seqno: Seqno(seqno),
        rev: RevSeqno(1),
        deleted: false,
        content_meta: ContentMeta(0),
        rev_meta: b"",
        body: MutationBody::None,
    }
}

proptest! {
    #[test]
    fn batch_orders_sort_by_key_and_by_seqno(
        keys in prop::collection::hash_set(prop::collection::vec(0..3_u8, 1..14), 1..60),
        prefix in prop::collection::vec(any::<u8>(), 0..12),
    ) {
        let keys: Vec<Vec<u8>> = keys.into_iter().map(|key| [prefix.clone(), key].concat()).collect();
        let count = keys.len() as u64;
        let batch: Vec<_> = keys.iter().zip(1..).map(|(key, n)| mutation(key, 1 + n * 7 % (count * 7 + 1))).collect();
        let order = by_key(&batch).expect("no duplicates");
        let sorted: Vec<&[u8]> = (0..order.len()).map(|at| batch[order.get(at)].key).collect();
        let mut expected: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        expected.sort_unstable();
        prop_assert_eq!(sorted, expected);
        let order = by_seqno(&batch).expect("no duplicates");
        let sorted: Vec<Seqno> = (0..order.len()).map(|at| batch[order.get(at)].seqno).collect();
        prop_assert!(sorted.is_sorted());
        prop_assert_eq!(sorted.len(), batch.len());
    }
}

#[test]
fn duplicate_keys_and_seqnos_are_rejected() {
    let batch = [mutation(b"b", 1), mutation(b"a", 2), mutation(b"b", 3)];
    assert_eq!(by_key(&batch).err(), Some(InvalidBatch::DuplicateKey(0, 2)));
    let batch = [mutation(b"a", 2), mutation(b"a", 3)];
    assert_eq!(by_key(&batch).err(), Some(InvalidBatch::DuplicateKey(0, 1)));
    // The zeros that pad a short key do not make it a duplicate.
    let batch = [mutation(b"a\0", 1), mutation(b"a", 2)];
    assert!(by_key(&batch).is_ok());
    let batch = [mutation(b"a", 2), mutation(b"b", 1), mutation(b"c", 2)];
    assert_eq!(
        by_seqno(&batch).err(),
        Some(InvalidBatch::DuplicateSeqno(Seqno(2)))
    );
}

#[test]
fn oversized_fields_are_rejected() {
    let check = |mutation: Mutation<'_>| check_fields(&[mutation], Seqno(5));
    let long = vec![0; KEY_BYTES_MAX + 1];
    assert_eq!(check(mutation(b"", 6)), Err(InvalidBatch::KeyLength(0)));
    assert_eq!(check(mutation(&long, 6)), Err(InvalidBatch::KeyLength(0)));
    assert_eq!(check(mutation(&long[1..], 6)), Ok(()));
    assert_eq!(check(mutation(b"k", 0)), Err(InvalidBatch::NumberRange(0)));
    assert_eq!(
        check(mutation(b"k", 1 << 48)),
        Err(InvalidBatch::NumberRange(0))
    );
    let old = InvalidBatch::OldSeqno {
        seqno: Seqno(5),
        newest: Seqno(5),
    };
    assert_eq!(check(mutation(b"k", 5)), Err(old));
    let large_rev = Mutation {
        rev: RevSeqno(1 << 48),
        ..mutation(b"k", 6)
    };
    assert_eq!(check(large_rev), Err(InvalidBatch::NumberRange(0)));
    let meta = vec![0; REV_META_BYTES_MAX + 1];
    let large_meta = Mutation {
        rev_meta: &meta,
        ..mutation(b"k", 6)
    };
    assert_eq!(check(large_meta), Err(InvalidBatch::ValueLength(0)));
    let body = vec![0; BODY_BYTES_MAX + 1];
    for body in [
        MutationBody::Stored(&body),
        MutationBody::Compress(&body[1..]),
    ] {
        let large_body = Mutation {
            body,
            ..mutation(b"k", 6)
        };
        assert_eq!(check(large_body), Err(InvalidBatch::BodyLength(0)));
    }
}
