//! Errors of paths, as statuses of the wire.

use kedge_json::SubdocError;
use kedge_types::Status;

pub(crate) fn status_of(error: SubdocError) -> Status {
    match error {
        SubdocError::PathEnoent => Status::SubdocPathEnoent,
        SubdocError::PathMismatch => Status::SubdocPathMismatch,
        SubdocError::PathE2big => Status::SubdocPathE2big,
        SubdocError::PathE2deep => Status::SubdocPathE2deep,
        SubdocError::PathEexists => Status::SubdocPathEexists,
        SubdocError::ValueCantinsert => Status::SubdocValueCantinsert,
        SubdocError::ValueEtoodeep => Status::SubdocValueEtoodeep,
        SubdocError::DocNotjson => Status::SubdocDocNotjson,
        SubdocError::DocE2deep => Status::SubdocPathE2deep,
        SubdocError::NumErange => Status::SubdocNumErange,
        SubdocError::DeltaEinval => Status::SubdocDeltaEinval,
        _ => Status::SubdocPathEinval,
    }
}
