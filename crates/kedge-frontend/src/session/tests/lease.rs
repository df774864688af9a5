//! Tests of commands on a node whose lease is over.

use kedge_types::Clock as _;

use super::privileges::sample;
use super::*;
use crate::commands::context::RequiredAccess;
use crate::commands::row;

/// Commands that read or change an active vBucket, and whose row does not say so.
fn reaches_active(opcode: Opcode) -> bool {
    use Opcode as O;
    match row(opcode).access {
        // A scan that does not exist is not found.
        RequiredAccess::Document(_) => true,
        _ => matches!(opcode, O::ObserveSeqno | O::SeqnoPersistence),
    }
}

/// The status of a command on a node that serves until `until_ns`.
fn status(rig: &mut Rig, opcode: Opcode, until_ns: u64) -> Status {
    rig.shared.registry.serving().serve_until(until_ns);
    rig.give(&sample(opcode));
    rig.replies().first().map_or(Status::Success, |it| it.1)
}

#[test]
fn every_command_on_an_active_vbucket_is_refused_after_the_lease() {
    let mut checked = 0;
    for &opcode in Opcode::ALL {
        if !reaches_active(opcode) {
            continue;
        }
        let is_memcacheds = !opcode.is_supported(ConnectionKind::Couchbase)
            && opcode.is_supported(ConnectionKind::Memcached);
        let port = match is_memcacheds {
            true => Port::Memcached,
            false => Port::Kv,
        };
        let datatypes = [Feature::Json, Feature::Xattr, Feature::SnappyEverywhere];
        let features: &[Feature] = match opcode {
            Opcode::RangeScanCreate => &datatypes[..1],
            Opcode::GetEx | Opcode::GetExReplica => &datatypes,
            _ => &[],
        };
        let features = features.iter().copied();
        let features = features.fold(Features::of(&[Feature::Xerror]), Features::with);
        let mut rig = Rig::new(port, features);
        rig.give(&sample(Opcode::Set));
        rig.replies();
        let now_ns = rig.shared.now().mono_ns;
        let name = opcode.name();
        // The bucket's vBuckets are active, so that no replica is read.
        assert_eq!(
            status(&mut rig, opcode, now_ns),
            Status::NotMyVbucket,
            "{name}"
        );
        assert_eq!(status(&mut rig, opcode, 0), Status::NotMyVbucket, "{name}");
        let unlimited = status(&mut rig, opcode, u64::MAX);
        let reads_replica = matches!(opcode, Opcode::GetReplica | Opcode::GetExReplica);
        assert_eq!(unlimited == Status::NotMyVbucket, reads_replica, "{name}");
        checked += 1;
    }
    assert!(checked > 50, "{checked}");
}

/// The time of a command is that of the end of the one before it, not that of the turn's start.
#[test]
fn commands_of_a_long_turn_are_refused_after_the_lease() {
    let mut rig = Rig::new(Port::Kv, Features::of(&[Feature::Xerror]));
    let clock = rig.shared.clock.clone();
    let mut flush_requests = Vec::new();
    let mut turn = turn(&rig.shared, &mut flush_requests);
    let until_ns = clock.now().mono_ns + 1;
    rig.shared.registry.serving().serve_until(until_ns);
    turn.last_ns = until_ns;
    let bytes = sample(Opcode::Set);
    rig.session.on_bytes(&mut turn, &bytes, &mut rig.out);
    assert_eq!(rig.replies(), [(0, Status::NotMyVbucket)]);
}
