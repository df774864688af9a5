//! `me`.

use crate::session::TextStep;
use kedge_protocol::text::meta::{MetaDebug, MetaDebugItem, write_meta_debug};
use kedge_types::Status;

use super::super::{Exec, Outcome};
use super::Seen;

pub(in super::super) fn debug(exec: &mut Exec<'_, '_>, command: &MetaDebug<'_>) -> Outcome {
    let found = exec.read_meta_key(&command.key);
    exec.then(TextStep::Main, found, |exec, found| {
        seen(exec, command, found)
    })
}

pub(in super::super) fn seen(
    exec: &mut Exec<'_, '_>,
    command: &MetaDebug<'_>,
    found: Result<Seen, Status>,
) -> Outcome {
    let item = match found {
        Ok(seen) => Some(MetaDebugItem {
            ttl: exec.ttl(seen.item.expiry()),
            last_access_secs: None,
            cas: seen.cas.get(),
            fetched: None,
            size: seen.item.heap_bytes() as u64,
        }),
        Err(Status::KeyNotFound) => None,
        Err(status) => return exec.fail(status),
    };
    write_meta_debug(exec.out.buffer(), &command.key, item.as_ref());
    Outcome::Answered
}
