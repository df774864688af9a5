//! Features that clients ask for in HELLO.

use kedge_protocol::binary::commands::{Agent, Hello};
use kedge_protocol::binary::{Feature, Features};
use kedge_types::{Datatype, Status};
use proptest::prelude::*;

fn list(codes: &[u16]) -> Vec<u8> {
    codes.iter().flat_map(|code| code.to_be_bytes()).collect()
}

#[test]
fn hello_accepts_requests_of_real_clients() {
    let clients: [(&str, &[u16]); 6] = [
        (
            "C++ core (Python, Node, Ruby, PHP)",
            &[
                0x03, 0x06, 0x07, 0x08, 0x0b, 0x0c, 0x10, 0x0f, 0x11, 0x15, 0x12, 0x17, 0x14, 0x1c,
                0x21, 0x0e, 0x0d, 0x1e, 0x0a, 0x04,
            ],
        ),
        (
            "Go",
            &[
                0x02, 0x06, 0x08, 0x1e, 0x1d, 0x0c, 0x07, 0x0b, 0x04, 0x0a, 0x13, 0x0f, 0x12, 0x0e,
                0x1f, 0x10, 0x17, 0x19, 0x14, 0x1c, 0x11,
            ],
        ),
        (
            "Java",
            &[
                0x04, 0x06, 0x07, 0x08, 0x0a, 0x0b, 0x0c, 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13, 0x14,
                0x15, 0x17, 0x1a, 0x1c, 0x1d, 0x1e, 0x1f, 0x21,
            ],
        ),
        (
            "Rust",
            &[
                0x01, 0x06, 0x07, 0x0a, 0x13, 0x0b, 0x0e, 0x11, 0x19, 0x08, 0x17, 0x10, 0x12, 0x1d,
                0x1e, 0x1f, 0x0c, 0x14, 0x04, 0x0f,
            ],
        ),
        (
            "libcouchbase, first connection",
            &[
                0x02, 0x06, 0x0b, 0x0c, 0x1f, 0x1d, 0x1e, 0x08, 0x07, 0x03, 0x0a, 0x13, 0x04, 0x0f,
                0x12, 0x0e, 0x17, 0x14,
            ],
        ),
        (
            "libcouchbase, later connections",
            &[
                0x02, 0x06, 0x0b, 0x0c, 0x1f, 0x1d, 0x1e, 0x08, 0x07, 0x03, 0x0a, 0x13, 0x04, 0x0f,
                0x12, 0x0e, 0x17, 0x14, 0x10, 0x11,
            ],
        ),
    ];
    for (client, codes) in clients {
        let features = Features::parse(&list(codes)).expect(client);
        for &code in codes {
            match Feature::from_wire(code) {
                Some(feature) => assert!(features.contains(feature), "{client}: {code:#x}"),
                None => assert_eq!(code, 0x01, "{client}"),
            }
        }
        assert!(features.contains_all(Features::of(&[
            Feature::Collections,
            Feature::Xerror,
            Feature::Duplex,
        ])));
    }
}

#[test]
fn hello_rejects_contradictory_or_incomplete_features() {
    let cases: [(&[u16], bool); 14] = [
        (&[], true),
        (&[0x03, 0x05], false),
        (&[0x05], true),
        (&[0x0d], false),
        (&[0x0d, 0x0c], true),
        (&[0x1f], false),
        (&[0x0c, 0x1f], true),
        (&[0x15], false),
        (&[0x15, 0x06], true),
        (&[0x18], false),
        (&[0x22], false),
        (&[0x24, 0x06, 0x0b], false),
        (&[0x24, 0x06, 0x0b, 0x13], true),
        (&[0x16, 0x09, 0xffff, 0x12, 0x12], true),
    ];
    for (codes, accepted) in cases {
        let parsed = Features::parse(&list(codes));
        assert_eq!(parsed.is_ok(), accepted, "{codes:02x?}");
        if !accepted {
            assert_eq!(parsed, Err(Status::Invalid));
        }
    }
    assert_eq!(Features::parse(&[0]), Err(Status::Invalid));
    assert_eq!(
        Features::parse(&list(&[0x12, 0x12])),
        Ok(Features::NONE.with(Feature::Collections))
    );
}

#[test]
fn features_determine_the_allowed_datatypes() {
    for (features, datatypes) in [
        (Features::NONE, Datatype::RAW),
        (Features::of(&[Feature::Json]), Datatype::JSON),
        (Features::of(&[Feature::SnappyEverywhere]), Datatype::SNAPPY),
        (Features::of(&[Feature::Xattr]), Datatype::XATTR),
        (
            Features::ALL,
            Datatype::JSON
                .union(Datatype::SNAPPY)
                .union(Datatype::XATTR),
        ),
    ] {
        assert_eq!(features.datatypes(), datatypes);
    }
    let informational = Features::ALL.iter().filter(|f| !f.switches_behaviour());
    assert_eq!(informational.count(), 19);
}

#[test]
fn agents() {
    let named = |name: &str, id: Option<&str>| Agent {
        name: name.into(),
        connection_id: id.map(Into::into),
    };
    for (agent, expected) in [
        (&b"client/1.0"[..], named("client/1.0", None)),
        (
            br#"{"a":"client/1.0 (linux)","i":"01/02"}"#,
            named("client/1.0 (linux)", Some("01/02")),
        ),
        (br#"{"a":"x","more":[1]}"#, named("x", None)),
        (b"", named("", None)),
        (b"{broken", named("{broken", None)),
        (b"\xff", named("\u{fffd}", None)),
    ] {
        assert_eq!(Agent::parse(agent), expected);
    }
}

proptest! {
    #[test]
    fn sets_round_trip(bits in proptest::collection::vec(any::<bool>(), Feature::ALL.len())) {
        let set = Feature::ALL.iter().zip(bits).filter(|(_, bit)| *bit)
            .fold(Features::NONE, |set, (feature, _)| set.with(*feature));
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        prop_assert_eq!(bytes.len(), 2 * set.iter().count());
        if let Ok(parsed) = Features::parse(&bytes) {
            prop_assert_eq!(parsed, set);
        }
    }

    #[test]
    fn random_lists_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Features::parse(&bytes);
    }
}

#[test]
fn hello_rejects_a_too_long_agent() {
    use kedge_protocol::binary::{Opcode, RequestWriter};
    for (len, accepted) in [(250, true), (251, false)] {
        let agent = vec![b'a'; len];
        let mut bytes = Vec::new();
        let hello = Hello {
            agent: &agent,
            features: Features::NONE,
        };
        hello.encode(&RequestWriter::new(Opcode::Hello), &mut bytes);
        let decoded = Hello::decode(&crate::whole_request(&bytes));
        assert_eq!(decoded.is_ok(), accepted);
    }
}
