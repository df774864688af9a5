//! The groups of STAT about one key: `key NAME VB [SCOPE.COLLECTION]` and `key-byid NAME VB COLLECTION-ID`; `vkey` and
//! `vkey-byid` also compare the document with the file. Names are those of Couchbase Server's `cbstats key` and `vkey`.
//!
//! The reply may have to wait for the disk, so these groups are for the binary protocol only.

use kedge_bucket::{KeyFigures, Outcome, Read};
use kedge_node::output::Output;
use kedge_protocol::binary::commands::Stat;
use kedge_types::{CollectionId, Datatype, DocKey, Status};

use super::collection_stats::{collection_id_of, collection_path};
use super::context::{CommandContext, CommandOutcome};
use super::stat_lines::{state_name_of, vbucket_number};
use crate::session::{CommandFailure, Composer, ReplyKind, Rights, Session};

/// A group about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyStatGroup {
    validate: bool,
    by_id: bool,
}

impl KeyStatGroup {
    /// The group of this name, if it is about a key.
    pub(super) fn named(name: &str) -> Option<Self> {
        let (validate, by_id) = match name {
            "key" => (false, false),
            "key-byid" => (false, true),
            "vkey" => (true, false),
            "vkey-byid" => (true, true),
            _ => return None,
        };
        Some(Self { validate, by_id })
    }

    fn collection(
        self,
        session: &Session,
        argument: Option<&str>,
    ) -> Result<CollectionId, CommandFailure> {
        let bucket = session.selected()?;
        // Scopes and collections without any privilege are answered like missing ones.
        let visible = || session.privileges.visible(&bucket.collections().manifest());
        match argument {
            None if self.by_id => Err(USAGE),
            None => Ok(CollectionId::DEFAULT),
            Some(id) if self.by_id => collection_id_of(&visible(), id),
            Some(path) => collection_path(&visible(), path),
        }
    }
}

const USAGE: CommandFailure = CommandFailure::new(
    Status::Invalid,
    "the arguments must be a key, the number of its vBucket, and its collection if that is another than the default one",
);

/// Executes one of the groups; `words` are the arguments behind its name.
///
/// # Errors
/// `Invalid` for malformed arguments, `UnknownScope`, `UnknownCollection`, `KeyNotFound`, `NotMyVbucket`,
/// `AccessDenied`.
pub(super) fn stat<'w>(
    command: &mut CommandContext<'_, '_, '_>,
    group: KeyStatGroup,
    mut words: impl Iterator<Item = &'w str>,
) -> Result<CommandOutcome, CommandFailure> {
    let (Some(name), Some(vb)) = (words.next(), words.next()) else {
        return Err(USAGE);
    };
    let vb = vbucket_number(vb)?;
    let session = &command.session;
    let collection = group.collection(session, words.next())?;
    if words.next().is_some() {
        return Err(USAGE);
    }
    let key = DocKey::new(collection, name.as_bytes()).map_err(|_| USAGE)?;
    let read = Read {
        vb,
        key: &key,
        cookie: session.next_cookie(),
    };
    let bucket = session.collection(collection, Rights::STATS)?;
    match bucket
        .documents()
        .key_figures(command.turn.ctx(), &read, group.validate)?
    {
        Outcome::Done(figures) => {
            compose(&command.composer, &figures, command.out);
            Ok(CommandOutcome::Replied)
        }
        Outcome::Parked => Ok(command.park_as(ReplyKind::KeyStats)),
    }
}

/// Composes the whole answer.
pub(super) fn compose(composer: &Composer, figures: &KeyFigures, out: &mut Output) {
    let (number, opaque) = (composer.number, composer.opaque);
    let out = out.buffer();
    let mut tell = |name: &str, value: &str| {
        Stat::write_reply(number, opaque, name.as_bytes(), value.as_bytes(), out);
    };
    let KeyFigures { meta, state, .. } = figures;
    tell("key_is_dirty", &figures.is_dirty.to_string());
    tell("key_is_resident", &figures.is_resident.to_string());
    tell("key_exptime", &meta.expiry.0.to_string());
    tell("key_flags", &meta.flags.to_string());
    tell("key_cas", &meta.cas.get().to_string());
    tell("key_datatype", &datatype_text(meta.datatype));
    tell("key_vb_state", state_name_of(*state));
    if let Some(validity) = figures.validity {
        tell("key_valid", validity.name());
    }
    tell("", "");
}

/// The names of the bits of a datatype, `raw` for none.
fn datatype_text(datatype: Datatype) -> String {
    let bits = [
        (Datatype::SNAPPY, "snappy"),
        (Datatype::JSON, "json"),
        (Datatype::XATTR, "xattr"),
    ];
    let names = bits.iter().filter(|(bit, _)| datatype.contains(*bit));
    let names: Vec<&str> = names.map(|(_, name)| *name).collect();
    if names.is_empty() {
        "raw".to_owned()
    } else {
        names.join(",")
    }
}
