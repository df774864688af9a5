//! Statuses of DCP streams and range scans.

use kedge_protocol::binary::commands::dcp::{DcpBody, DcpStreamRequest};
use kedge_protocol::binary::commands::range_scan::{
    RangeScanCancel, RangeScanContinue, RangeScanCreate, ScanId, SnapshotRequirements,
};
use kedge_protocol::binary::{Opcode, RequestWriter};
use kedge_types::limits::RANGE_SCANS_MAX;
use kedge_types::{Seqno, Status, VbId, VbUuid};

use super::{Row, provoked};
use crate::client::Client;
use crate::dcp::{Follower, Got, request};
use crate::range_scan::{Limits, create, go_on, kedge, range, set};
use crate::server::Kedge;

pub(super) const ROWS: &[Row] = &[
    provoked(
        Status::StreamNotFound,
        "DCP_CLOSE_STREAM of a stream that is not there, with `v7_dcp_status_codes`",
        stream_not_found,
    ),
    provoked(
        Status::OutOfRange,
        "DCP_STREAM_REQ whose start is behind its end",
        out_of_range,
    ),
    provoked(
        Status::Rollback,
        "DCP_STREAM_REQ from a history that the vBucket has not",
        rollback,
    ),
    provoked(Status::Busy, "RANGE_SCAN_CREATE with 256 scans open", busy),
    provoked(
        Status::TemporaryFailure,
        "DCP_STREAM_REQ with a manifest that is still to come",
        temporary_failure,
    ),
    provoked(
        Status::DcpStreamIdInvalid,
        "DCP_STREAM_REQ with a stream id that was not enabled",
        stream_id_invalid,
    ),
    provoked(
        Status::RangeScanCancelled,
        "RANGE_SCAN_CANCEL of a scan that is being continued",
        scan_cancelled,
    ),
    provoked(
        Status::RangeScanMore,
        "RANGE_SCAN_CONTINUE of one of two documents",
        scan_more,
    ),
    provoked(
        Status::RangeScanComplete,
        "RANGE_SCAN_CONTINUE to the end",
        scan_complete,
    ),
    provoked(
        Status::VbUuidNotEqual,
        "RANGE_SCAN_CREATE with the uuid of another branch",
        other_branch,
    ),
];

fn ask_for(settings: &[(&str, &str)], wanted: DcpStreamRequest<'_>) -> Status {
    let kedge = Kedge::start();
    let mut follower = Follower::open(&kedge, "f", settings);
    match follower.ask(VbId(1), wanted) {
        Got::Reply(_, status, _) => status,
        other => panic!("{other:?}"),
    }
}

fn stream_not_found() -> Status {
    let kedge = Kedge::start();
    let mut follower = Follower::open(&kedge, "f", &[("v7_dcp_status_codes", "true")]);
    follower.send(1, DcpBody::CloseStream);
    follower.status()
}

fn out_of_range() -> Status {
    ask_for(
        &[],
        DcpStreamRequest {
            end: Seqno(4),
            ..request(5, 0)
        },
    )
}

fn rollback() -> Status {
    ask_for(&[], request(5, 77))
}

fn temporary_failure() -> Status {
    ask_for(
        &[],
        DcpStreamRequest {
            filter: b"{\"uid\":\"2\"}",
            ..request(0, 0)
        },
    )
}

fn stream_id_invalid() -> Status {
    ask_for(
        &[],
        DcpStreamRequest {
            filter: b"{\"sid\":1}",
            ..request(0, 0)
        },
    )
}

/// The status of a step of a client, with two documents in the only vBucket.
fn with_documents(step: impl FnOnce(&mut Client) -> Status) -> Status {
    let kedge = kedge();
    let mut client = kedge.client();
    for key in ["a", "b"] {
        set(&mut client, key, b"1");
    }
    step(&mut client)
}

fn made(result: Result<ScanId, Status>) -> Status {
    result.map_or_else(|status| status, |_| Status::Success)
}

fn busy() -> Status {
    with_documents(|client| {
        for _ in 0..RANGE_SCANS_MAX {
            create(client, &range("a", "z")).unwrap();
        }
        made(create(client, &range("a", "z")))
    })
}

fn other_branch() -> Status {
    let snapshot = SnapshotRequirements {
        vb_uuid: VbUuid(77),
        seqno: Seqno(1),
        seqno_exists: false,
        timeout_ms: None,
    };
    let wanted = RangeScanCreate {
        snapshot: Some(snapshot),
        ..range("a", "z")
    };
    with_documents(|client| made(create(client, &wanted)))
}

fn continued(items: u32) -> Status {
    with_documents(|client| {
        let id = create(client, &range("a", "z")).unwrap();
        let limits = Limits {
            items,
            ..Limits::default()
        };
        go_on(client, id, limits).last().unwrap().status
    })
}

fn scan_more() -> Status {
    continued(1)
}

fn scan_complete() -> Status {
    continued(0)
}

/// Sends a continue and a cancel together. The scan may end first, or not have continued yet: then tries again.
fn scan_cancelled() -> Status {
    let kedge = kedge();
    let (mut client, mut other) = (kedge.client(), kedge.client());
    for number in 0..100 {
        set(&mut client, &format!("k{number}"), &[b'x'; 50_000]);
    }
    let wanted = RangeScanCreate {
        key_only: false,
        ..range("a", "z")
    };
    for _ in 0..1_000 {
        let id = create(&mut client, &wanted).unwrap();
        let (mut go_on, mut cancel) = (Vec::new(), Vec::new());
        RangeScanContinue {
            id,
            items_max: 0,
            time_ms_max: 0,
            bytes_max: 0,
        }
        .encode(&RequestWriter::new(Opcode::RangeScanContinue), &mut go_on);
        RangeScanCancel { id }.encode(&RequestWriter::new(Opcode::RangeScanCancel), &mut cancel);
        client.send(&go_on);
        other.send(&cancel);
        let ended = loop {
            match client.reply().status {
                Status::Success => {}
                status => break status,
            }
        };
        other.reply();
        if ended == Status::RangeScanCancelled {
            return ended;
        }
    }
    Status::RangeScanComplete
}
