//! `me`.

use crate::session::{Rights, TextStep};
use kedge_protocol::text::meta::{MetaDebug, MetaDebugItem, write_meta_debug};
use kedge_types::Status;

use super::super::context::{TextCommandContext, TextOutcome};
use super::DocumentAccess;

pub(in super::super) fn debug(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaDebug<'_>,
) -> TextOutcome {
    let found = exec.read_meta_key(Rights::READ, &command.key);
    exec.then(TextStep::Main, found, |exec, found| {
        seen(exec, command, found)
    })
}

pub(in super::super) fn seen(
    exec: &mut TextCommandContext<'_, '_>,
    command: &MetaDebug<'_>,
    found: Result<DocumentAccess, Status>,
) -> TextOutcome {
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
    TextOutcome::Answered
}
