//! Tests of the order of replies over a socket, with syncs at any time. The tests of sessions check each moment.

use std::collections::HashSet;

use kedge_protocol::binary::{Feature, Opcode};
use kedge_types::DurabilityLevel;

use crate::client::{Client, Frame, SDK_FEATURES};
use crate::server::{Kedge, Setup};

const LEVEL: DurabilityLevel = DurabilityLevel::PersistToMajority;

/// Durable writes and reads, mixed.
fn mixed(client: &mut Client, prefix: usize, count: u32) -> (Vec<u8>, Vec<u32>) {
    let mut bytes = Vec::new();
    let mut opaques = Vec::new();
    for number in 0..count {
        let frame = match number % 3 {
            0 => client
                .request(Opcode::Set)
                .store(&format!("{prefix}-{number}"), b"v")
                .durable(LEVEL),
            1 => client
                .request(Opcode::Get)
                .key(&format!("{prefix}-{}", number - 1)),
            _ => client.request(Opcode::Noop),
        };
        opaques.push(frame.opaque);
        bytes.extend(frame.bytes());
    }
    (bytes, opaques)
}

#[test]
fn replies_are_in_order_with_durable_writes() {
    let kedge = Kedge::with(Setup {
        threads: 2,
        ..Setup::default()
    });
    let mut clients: Vec<_> = (0..4).map(|_| kedge.client()).collect();
    let sent: Vec<Vec<u32>> = clients
        .iter_mut()
        .enumerate()
        .map(|(prefix, client)| {
            let (bytes, opaques) = mixed(client, prefix, 300);
            client.send(&bytes);
            opaques
        })
        .collect();
    for (client, opaques) in clients.iter_mut().zip(sent) {
        for opaque in opaques {
            // Each read returns the value of the write before it.
            assert_eq!(client.reply().ok().opaque, opaque);
        }
    }
}

#[test]
fn unordered_commands_are_answered_once_and_respect_barriers() {
    let kedge = Kedge::start();
    let mut client = kedge.client();
    client.hello(SDK_FEATURES.with(Feature::UnorderedExecution));
    let mut bytes = Vec::new();
    let mut groups: Vec<HashSet<u32>> = Vec::new();
    for round in 0..20 {
        let mut group = HashSet::new();
        for number in 0..10 {
            let key = format!("k{round}-{number}");
            let frame = if number % 2 == 0 {
                client.request(Opcode::Set).store(&key, b"v").durable(LEVEL)
            } else {
                client.request(Opcode::Get).key(&key)
            };
            group.insert(frame.opaque);
            bytes.extend(frame.bytes());
        }
        groups.push(group);
        let barrier: Frame = client.request(Opcode::Get).key("barrier").barrier();
        groups.push(HashSet::from([barrier.opaque]));
        bytes.extend(barrier.bytes());
    }
    client.send(&bytes);
    for mut group in groups {
        while !group.is_empty() {
            let opaque = client.reply().opaque;
            assert!(
                group.remove(&opaque),
                "{opaque} is not of the group that is due: {group:?}"
            );
        }
    }
}
