use super::*;

#[test]
fn every_opcode_number_has_one_meaning_per_connection_kind() {
    assert_eq!(Opcode::ALL.len(), 162 + 34 + 2);
    for &opcode in Opcode::ALL {
        let kinds = [ConnectionKind::Couchbase, ConnectionKind::Memcached];
        let names: Vec<_> = kinds
            .iter()
            .filter_map(|kind| Opcode::from_wire(opcode.wire(), *kind))
            .collect();
        assert!(names.contains(&opcode), "{opcode:?} can be reached");
    }
    assert_eq!(
        Opcode::from_wire(0x23, ConnectionKind::Couchbase),
        Some(Opcode::IoctlGet)
    );
    assert_eq!(
        Opcode::from_wire(0x24, ConnectionKind::Memcached),
        Some(Opcode::Gatkq)
    );
    assert_eq!(Opcode::from_wire(0xff, ConnectionKind::Memcached), None);
}

#[test]
fn opcode_attributes_agree_with_each_other() {
    for &opcode in Opcode::ALL {
        assert_eq!(opcode.base() != opcode, opcode.is_quiet(), "{opcode:?}");
        assert!(!opcode.base().is_quiet());
        if opcode.supports_durability() || opcode.supports_preserve_ttl() {
            assert!(opcode.is_write(), "{opcode:?}");
        }
        assert!(
            !(opcode.is_quiet() && opcode.supports_durability()),
            "{opcode:?}"
        );
        assert_eq!(
            opcode.is_quiet(),
            opcode.suppresses(Status::Success) || opcode.suppresses(Status::KeyNotFound)
        );
        assert!(!opcode.suppresses(Status::Invalid));
        if opcode.audience() == Audience::Reserved {
            assert!(!opcode.is_supported(ConnectionKind::Memcached));
        }
    }
    let count = |audience| {
        Opcode::ALL
            .iter()
            .filter(|o| o.audience() == audience)
            .count()
    };
    assert_eq!(
        (count(Audience::A), count(Audience::B), count(Audience::C)),
        (34, 16, 65)
    );
}

#[test]
fn unsupported_numbers() {
    for (number, status) in [
        (0x08, Status::NotSupported),
        (0x18, Status::NotSupported),
        (0x2c, Status::NotSupported),
        (0x5a, Status::NotSupported),
        (0x40, Status::NotSupported),
        (0xff, Status::UnknownCommand),
        (0x88, Status::UnknownCommand),
        (0xee, Status::UnknownCommand),
    ] {
        let of = |kind| Opcode::unsupported_status(number, kind);
        assert_eq!(of(ConnectionKind::Couchbase), status, "{number:#x}");
        assert_eq!(of(ConnectionKind::Memcached), Status::UnknownCommand);
    }
}
