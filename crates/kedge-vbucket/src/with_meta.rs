//! Writes with given metadata, for XDCR and other tools that copy documents.
//!
//! Sources: Couchbase documentation of SET_WITH_META, ADD_WITH_META and DEL_WITH_META, and "XDCR Conflict Resolution".

use crate::item::{Deletion, Item, ItemMeta};
use crate::patch::Patches;
use crate::results::{Mutated, StepOutcome};
use crate::step::Step;
use crate::value::NewValue;
use crate::write::{RequiredPart, StepWrite};
use kedge_types::limits::{TOMBSTONE_PURGE_AGE_SECS, WITH_META_REV_MAX};
use kedge_types::{Cas, Datatype, Expiry, Now, RevSeqno, Status};
use std::borrow::Cow;

/// The conflict resolution rule, which selects one of two versions of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictRule {
    /// Revision-based resolution: the higher revision wins, then the later CAS.
    MostChanges,
    /// Last write wins: the later CAS wins, then the higher revision.
    LastWrite,
}

/// The arguments of a write with metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithMetaArgs {
    /// The CAS.
    pub cas: Cas,
    /// The revision: the number of changes.
    pub rev: RevSeqno,
    /// The flags that the client set.
    pub flags: u32,
    /// The expiry. For a deletion, the time of deletion.
    pub expiry: Expiry,
    /// The cause, for a deletion.
    pub deleted: Option<Deletion>,
    /// True if the write must fail when a live document exists.
    pub only_new: bool,
    /// True if the version gets a new CAS of this vBucket, which conflict resolution then uses.
    pub new_cas: bool,
    /// The conflict resolution rule against the existing document, or `None` to replace it unconditionally.
    pub rule: Option<ConflictRule>,
}

impl WithMetaArgs {
    /// Returns whether the new version, with a value of this datatype, wins against `there`. If both are equal in all
    /// compared fields, the existing one wins.
    #[must_use]
    pub fn wins(&self, rule: ConflictRule, datatype: Datatype, there: &ItemMeta) -> bool {
        let order = |rev: RevSeqno, cas: Cas| match rule {
            ConflictRule::MostChanges => (rev.get(), cas.get()),
            ConflictRule::LastWrite => (cas.get(), rev.get()),
        };
        let (ours, theirs) = (order(self.rev, self.cas), order(there.rev, there.cas));
        // Expiry and flags of deletions are not compared.
        if self.deleted.is_some() || ours != theirs {
            return ours > theirs;
        }
        let has_xattrs = |datatype: Datatype| datatype.contains(Datatype::XATTR);
        (self.expiry, self.flags, has_xattrs(datatype))
            > (there.expiry, there.flags, has_xattrs(there.datatype))
    }

    /// Returns the time of deletion to store. An unknown or future time becomes the current time. So does a time as old
    /// as the purge age, because the tombstone would be purged before it is replicated.
    fn deleted_at(&self, now: Now) -> Expiry {
        let secs = now.unix_secs();
        let deleted_secs = u64::from(self.expiry.0);
        let is_kept = deleted_secs <= secs && secs - deleted_secs < TOMBSTONE_PURGE_AGE_SECS;
        if is_kept {
            self.expiry
        } else {
            Expiry(u32::try_from(secs).unwrap_or(u32::MAX))
        }
    }
}

impl Step<'_> {
    /// Stores or deletes a document with the given metadata, never as a SyncWrite. The `value` of a deletion has
    /// extended attributes or is empty. `patches` were checked against `value`.
    ///
    /// # Errors
    /// `KeyExists` if the existing version wins, has another CAS than `write`, or exists despite
    /// [`WithMetaArgs::only_new`]; `CasValueInvalid` if the CAS is missing or too far in the future; `Invalid` if the
    /// revision is too high; `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
    pub fn write_with_meta(
        &mut self,
        write: &StepWrite<'_>,
        args: &WithMetaArgs,
        value: &NewValue<'_>,
        patches: &Patches,
    ) -> Result<StepOutcome<Mutated>, Status> {
        if args.rev.get() > WITH_META_REV_MAX {
            return Err(Status::Invalid);
        }
        if !args.new_cas && !self.store.history.clock.accepts(args.cas, self.now.unix_ns) {
            return Err(Status::CasValueInvalid);
        }
        let Some(found) = self.find_for_write(write, RequiredPart::Metadata)? else {
            return Ok(StepOutcome::Fetch);
        };
        if args.only_new && found.old.is_some() {
            return Err(Status::KeyExists);
        }
        self.check_version(write, found.old.as_ref())?;
        let there = found
            .old
            .as_ref()
            .or_else(|| self.store.documents.find(found.hash, write.key.as_bytes()));
        let there = there.map(Item::meta);
        let cas = if args.new_cas {
            self.store.history.clock.next(self.now.unix_ns)
        } else {
            args.cas
        };
        let comes = WithMetaArgs { cas, ..*args };
        if let (Some(rule), Some(there)) = (args.rule, there)
            && !comes.wins(rule, value.datatype, &there)
        {
            return Err(Status::KeyExists);
        }
        if !args.new_cas {
            self.store.history.clock.learn(cas, self.now.unix_ns);
        }
        let seqno = self.store.history.next_seqno();
        let mut bytes = Cow::Borrowed(&*value.bytes);
        if !patches.is_empty() {
            patches.apply(bytes.to_mut(), cas, seqno);
        }
        let meta = ItemMeta {
            cas,
            seqno,
            rev: args.rev,
            flags: args.flags,
            expiry: match args.deleted {
                None => args.expiry,
                Some(_) => args.deleted_at(self.now),
            },
            datatype: value.datatype,
            deleted: args.deleted,
            level: None,
        };
        let draft = write.draft_of(&bytes);
        Ok(self.put_new(write, &found, &meta, &bytes, draft))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflict_resolution_selects_the_same_winner_on_both_sides() {
        use ConflictRule::{LastWrite, MostChanges};
        // (revision, CAS, expiry, flags) of the new and the existing version; whether the new one wins by each rule;
        // whether its deletion does.
        type Version = (u64, u64, u32, u32);
        let table: &[(Version, Version, [bool; 2], [bool; 2])] = &[
            ((2, 1, 0, 0), (1, 9, 0, 0), [true, false], [true, false]),
            ((1, 9, 0, 0), (2, 1, 0, 0), [false, true], [false, true]),
            ((1, 9, 0, 0), (1, 8, 9, 9), [true, true], [true, true]),
            ((2, 9, 0, 0), (1, 9, 9, 9), [true, true], [true, true]),
            ((1, 9, 6, 0), (1, 9, 5, 9), [true, true], [false, false]),
            ((1, 9, 5, 9), (1, 9, 6, 0), [false, false], [false, false]),
            ((1, 9, 5, 2), (1, 9, 5, 1), [true, true], [false, false]),
            ((1, 9, 5, 1), (1, 9, 5, 2), [false, false], [false, false]),
            ((1, 9, 5, 1), (1, 9, 5, 1), [false, false], [false, false]),
        ];
        for (comes, is, documents, deletions) in table {
            for (rule, at) in [(MostChanges, 0), (LastWrite, 1)] {
                let there = ItemMeta {
                    rev: RevSeqno(is.0),
                    cas: Cas(is.1),
                    expiry: Expiry(is.2),
                    flags: is.3,
                    ..ItemMeta::default()
                };
                let mut args = WithMetaArgs {
                    cas: Cas(comes.1),
                    rev: RevSeqno(comes.0),
                    flags: comes.3,
                    expiry: Expiry(comes.2),
                    deleted: None,
                    only_new: false,
                    new_cas: false,
                    rule: Some(rule),
                };
                let case = (rule, comes, is);
                let wins = |args: &WithMetaArgs| args.wins(rule, Datatype::RAW, &there);
                assert_eq!(wins(&args), documents[at], "{case:?}");
                // Extended attributes decide between otherwise equal versions.
                let with_xattrs = args.wins(rule, Datatype::XATTR, &there);
                assert_eq!(with_xattrs, documents[at] || comes == is, "{case:?}");
                let there_has = ItemMeta {
                    datatype: Datatype::XATTR,
                    ..there
                };
                let both_have = args.wins(rule, Datatype::XATTR, &there_has);
                assert_eq!(both_have, documents[at], "{case:?}");
                args.deleted = Some(Deletion::Explicit);
                assert_eq!(wins(&args), deletions[at], "deletion {case:?}");
                let with_xattrs = args.wins(rule, Datatype::XATTR, &there);
                assert_eq!(with_xattrs, deletions[at], "deletion {case:?}");
            }
        }
    }
}
