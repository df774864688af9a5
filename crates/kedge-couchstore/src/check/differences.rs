//! The search for the differences between two sound trees that are known to differ: one lookup per entry.

use super::walk::walk;
use super::{CheckEnd, CheckRun};
use crate::tree::{ById, BySeqno};
use crate::{DamageKind, Entry};

pub(super) fn find(check: &mut CheckRun<'_>) -> Result<(), CheckEnd> {
    let snapshot = check.snapshot.clone();
    let header = snapshot.header();
    walk::<ById>(check, header.by_id, &mut |check, leaf, node, entry| {
        let entry = Entry::from_id(node, &entry);
        match snapshot.get_by_seqno(entry.seqno()) {
            Ok(Some(other)) if other == entry => Ok(()),
            Ok(_) => check.tell(leaf, DamageKind::TreesDiffer(entry.seqno().0)),
            Err(error) => check.tell_error(error),
        }
    })?;
    // The walk above has reported documents that are in both trees.
    walk::<BySeqno>(check, header.by_seqno, &mut |check, leaf, node, entry| {
        let entry = Entry::from_seqno(node, &entry);
        match snapshot.get(entry.key()) {
            Ok(Some(other)) if other.seqno() == entry.seqno() => Ok(()),
            Ok(_) => check.tell(leaf, DamageKind::TreesDiffer(entry.seqno().0)),
            Err(error) => check.tell_error(error),
        }
    })?;
    Ok(())
}
