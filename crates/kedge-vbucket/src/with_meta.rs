//! Writes that bring their metadata along, from tools that copy documents from elsewhere.
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

/// The rule by which one of two versions of a document stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictRule {
    /// The one that was changed more often; of two that were changed as often, the later one.
    MostChanges,
    /// The later one; of two of the same time, the one that was changed more often.
    LastWrite,
}

/// The metadata of a version that was made elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WithMetaArgs {
    /// Its version.
    pub cas: Cas,
    /// Count of changes.
    pub rev: RevSeqno,
    /// The client's own 32 bits.
    pub flags: u32,
    /// When it expires; for a deletion, when it was deleted.
    pub expiry: Expiry,
    /// True if it is a deletion, and why.
    pub deleted: Option<Deletion>,
    /// A live document must not be there.
    pub only_new: bool,
    /// It gets a CAS of this vBucket, and is compared with that.
    pub new_cas: bool,
    /// The rule that it must win by against the existing document; `None`: it takes the place of anything.
    pub rule: Option<ConflictRule>,
}

impl WithMetaArgs {
    /// Returns whether it, with a value of this datatype, stays rather than `there`. Of two that are the same in all
    /// that counts, the one that is there does.
    #[must_use]
    pub fn wins(&self, rule: ConflictRule, datatype: Datatype, there: &ItemMeta) -> bool {
        let order = |rev: RevSeqno, cas: Cas| match rule {
            ConflictRule::MostChanges => (rev.get(), cas.get()),
            ConflictRule::LastWrite => (cas.get(), rev.get()),
        };
        let (ours, theirs) = (order(self.rev, self.cas), order(there.rev, there.cas));
        // Of deletions neither expiry nor flags say anything.
        if self.deleted.is_some() || ours != theirs {
            return ours > theirs;
        }
        let has_xattrs = |datatype: Datatype| datatype.contains(Datatype::XATTR);
        (self.expiry, self.flags, has_xattrs(datatype))
            > (there.expiry, there.flags, has_xattrs(there.datatype))
    }

    /// When a deletion was, as it is kept: a time that is not known, or is still to come, is now. So is one that is as
    /// old as tombstones get, or it would be forgotten before anyone heard of it.
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
    /// Stores or deletes a document with the metadata given. It is never a SyncWrite. `value` of a deletion has
    /// extended attributes, or nothing. `patches` were checked with it.
    ///
    /// # Errors
    /// `KeyExists` when the one that is there stays, has another CAS than `write` says, or is there at all though
    /// [`WithMetaArgs::only_new`]; `CasValueInvalid` when the CAS given is none, or of a time that is too far ahead; `Invalid`
    /// when its revision is too high; `KeyNotFound`, `Locked`, `SyncWriteInProgress`.
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
    fn the_winner_is_the_same_on_both_sides() {
        use ConflictRule::{LastWrite, MostChanges};
        // (revision, CAS, expiry, flags) of what comes and what is there; who wins by each rule; whether a deletion does.
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
                // Attributes decide between those that are the same otherwise.
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
