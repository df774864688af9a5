//! A mutation of several paths is all of its specs, one after the other, or none of them.

use crate::tools::*;
use kedge_protocol::binary::commands::subdoc::SubdocOp::{
    ArrayAddUnique, ArrayInsert, ArrayPushFirst, ArrayPushLast, Counter, Delete, DictAdd,
    DictUpsert, Replace,
};
use kedge_protocol::binary::commands::subdoc::{DocFlags, PathFlags, SubdocOp};
use kedge_types::{Datatype, Status};
use kedge_vbucket::{Item, ItemMeta, Modify as _};
use proptest::prelude::*;

type Made = (SubdocOp, bool, bool, String, String);

fn specs() -> impl Strategy<Value = Vec<Made>> {
    let op = prop_oneof![
        Just(DictAdd),
        Just(DictUpsert),
        Just(Delete),
        Just(Replace),
        Just(ArrayPushLast),
        Just(ArrayPushFirst),
        Just(ArrayInsert),
        Just(ArrayAddUnique),
        Just(Counter),
    ];
    let step = prop_oneof!["\\.[a-c]", "\\[[0-2]\\]", Just("[-1]".to_owned())];
    let path = ("[a-c]", proptest::collection::vec(step, 0..3))
        .prop_map(|(first, rest)| first + &rest.concat());
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("2".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("[1,{\"a\":2}]".to_owned()),
        Just("{\"b\":[1,2]}".to_owned()),
        Just("x".to_owned()),
    ];
    let spec = (op, any::<bool>(), any::<bool>(), path, value);
    proptest::collection::vec(spec, 1..8)
}

proptest! {
    #[test]
    fn multi_spec_lookup_equals_single_lookups(made in specs(), body in "[0-9]|\\{\\}|\\{\"a\":\\[1,2\\],\"b\":\\{\"c\":3\\}\\}") {
        let specs: Vec<_> = made
            .iter()
            .map(|(op, xattr, parents, path, value)| {
                let flags = match (xattr, parents) {
                    (false, false) => NO,
                    (false, true) => P,
                    (true, false) => X,
                    (true, true) => X.union(P),
                };
                let value = if *op == Delete { "" } else { value.as_str() };
                spec(*op, flags, path, value)
            })
            .collect();
        let item = document(&[("a", "[1]"), ("b", "{\"a\":1}")], &body);
        let before = item.value().to_vec();
        let mut there = item.clone();
        let mut failed = None;
        for (index, one) in specs.iter().enumerate() {
            let mutation = kedge_subdoc::SubdocMutation::new([*one], DocFlags::NONE);
            match mutation.modify(Some(&there), &NEXT) {
                Ok(modified) => {
                    let meta = ItemMeta { datatype: modified.datatype, ..there.meta() };
                    there = Item::new(&meta, b"\0k", &[&modified.value]);
                }
                Err(status) => {
                    prop_assert_eq!(status, Status::SubdocMultiPathFailure);
                    failed = Some((index as u8, mutation.reply().failed.unwrap().1));
                    break;
                }
            }
        }
        let all = kedge_subdoc::SubdocMutation::new(specs.iter().copied(), DocFlags::NONE);
        match (all.modify(Some(&item), &NEXT), failed) {
            (Ok(modified), None) => {
                prop_assert_eq!(&modified.value[..], there.value());
                prop_assert_eq!(modified.datatype, there.datatype());
                prop_assert!(modified.datatype.contains(Datatype::JSON));
            }
            (Err(status), Some(failed)) => {
                prop_assert_eq!(status, Status::SubdocMultiPathFailure);
                prop_assert_eq!(all.reply().failed, Some(failed));
            }
            (other, failed) => prop_assert!(false, "{:?} {:?}", other, failed),
        }
        prop_assert_eq!(item.value(), &before[..]);
    }

    #[test]
    fn mutation_survives_random_specs_and_documents(
        made in proptest::collection::vec((0usize..32, 0u8..64, proptest::collection::vec(any::<u8>(), 0..20), proptest::collection::vec(any::<u8>(), 0..20)), 1..6),
        xattrs in proptest::collection::vec(any::<u8>(), 0..40),
        datatype in 0u8..8,
        flags in 0u8..64,
    ) {
        let specs: Vec<_> = made
            .iter()
            .map(|(op, flags, path, value)| kedge_protocol::binary::commands::subdoc::SubdocSpec {
                op: SubdocOp::ALL[op % SubdocOp::ALL.len()],
                flags: PathFlags::from_bits(flags & 0x35).unwrap(),
                path,
                value,
            })
            .collect();
        let meta = ItemMeta { datatype: Datatype::from_bits(datatype).unwrap(), ..ItemMeta::default() };
        let item = Item::new(&meta, b"\0k", &[&xattrs]);
        let looked = kedge_subdoc::lookup(&item, item.cas(), &AROUND, specs.iter().copied(), &mut |_, _| {});
        prop_assert!(matches!(looked, Ok(()) | Err(Status::Internal)));
        let mutation = kedge_subdoc::SubdocMutation::new(specs.iter().copied(), DocFlags::from_bits(flags).unwrap());
        if let Ok(modified) = mutation.modify(Some(&item), &NEXT) {
            let meta = ItemMeta { datatype: modified.datatype, ..ItemMeta::default() };
            let item = Item::new(&meta, b"\0k", &[&modified.value]);
            prop_assert!(kedge_vbucket::ValueParts::of(&item).is_ok());
        }
        let _ = kedge_subdoc::check(specs);
    }
}
