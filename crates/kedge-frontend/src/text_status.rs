//! Statuses in the text protocol.

use kedge_node::output::Output;
use kedge_protocol::text::reply;
use kedge_types::Status;

/// Appends the error reply for a status that the command has no reply of its own for.
pub(crate) fn write_status(out: &mut Output, status: Status) {
    let out = out.buffer();
    match status {
        Status::TooBig => out.extend_from_slice(reply::TOO_LARGE),
        Status::NoMemory => out.extend_from_slice(reply::OUT_OF_MEMORY),
        Status::DeltaBadValue => out.extend_from_slice(reply::NON_NUMERIC),
        Status::Invalid => out.extend_from_slice(reply::BAD_FORMAT),
        Status::CasValueInvalid => {
            reply::write_client_error(out, "the CAS is ahead of the server's clock");
        }
        Status::Locked => reply::write_server_error(out, "the document is locked"),
        Status::NoBucket => reply::write_server_error(out, "there is no bucket"),
        Status::TemporaryFailure => reply::write_server_error(out, "temporary failure"),
        Status::SyncWriteInProgress => {
            reply::write_server_error(out, "another durable write of the document is in progress");
        }
        Status::SyncWriteAmbiguous => {
            reply::write_server_error(out, "the outcome of the durable write is not known");
        }
        other => reply::write_server_error(out, other.name()),
    }
}
