//! The documents of the users in the store, and the transactions that change them.

use kedge_auth::{COMMON_DOCUMENT, UserDocuments, UserStore};
use kedge_cluster::{ClusterError, Feature};
use kedge_coordination::{Compare, Revision, Snapshot, Transaction};

use super::super::store::{MAP_KEY, StoreError, StoredMap, USERS_KEYS, map_in};

/// The largest number of documents that a transaction changes, beside the common one.
const TRANSACTION_DOCUMENTS: usize = 100;
/// The largest sum of their bytes, unless there is only one.
const TRANSACTION_BYTES: usize = 512 << 10;

const _: () = assert!(TRANSACTION_DOCUMENTS < kedge_coordination::TRANSACTION_OPS_MAX);
const _: () = assert!(TRANSACTION_BYTES < kedge_coordination::TRANSACTION_BYTES_MAX);

/// The users in the store.
pub(super) struct StoredUsers {
    pub(super) documents: UserDocuments,
    /// The revision of the store in which the common document was changed; `None` if there is none.
    pub(super) changed: Option<Revision>,
    /// The map in the same store.
    map: Option<StoredMap>,
}

/// A change of one document: its name, and its new content if it stays.
pub(super) type DocumentChange<'d> = (&'d String, Option<&'d Vec<u8>>);

impl StoredUsers {
    pub(super) fn read(snapshot: Snapshot) -> Result<Self, StoreError> {
        let mut stored = Self {
            documents: UserDocuments::new(),
            changed: None,
            map: map_in(&snapshot)?,
        };
        for entry in snapshot.entries {
            let Some(name) = entry.key.strip_prefix(USERS_KEYS) else {
                continue;
            };
            if name == COMMON_DOCUMENT {
                stored.changed = Some(entry.mod_revision);
            }
            stored.documents.insert(name.to_owned(), entry.value);
        }
        Ok(stored)
    }

    /// Returns the cluster of the store; `None` if it has no map.
    pub(super) fn cluster(&self) -> Option<&str> {
        self.map.as_ref().map(|it| it.map.cluster_uuid.as_str())
    }

    /// Checks that all nodes can read these users: the level in force, which never goes down, has what they use.
    ///
    /// # Errors
    /// `NeedsLevel`.
    pub(super) fn check_level(&self, next: &UserStore) -> Result<(), ClusterError> {
        let Some(map) = self.map.as_ref().map(|it| &it.map) else {
            return Ok(());
        };
        let uses = [
            (Feature::ExternalUsers, next.has_external()),
            (Feature::DefinedRoles, !next.custom_roles().is_empty()),
            (Feature::AuditSettings, next.audit_settings().is_some()),
        ];
        let mut uses = uses.into_iter().filter(|(_, is_used)| *is_used);
        uses.try_for_each(|(feature, _)| map.require(feature))
    }

    /// Returns a transaction on the condition that the users are unchanged, which makes the new common document valid. If there
    /// are none the map is unchanged, too: another store without users has to be no other one.
    pub(super) fn replace_common(&self, next: &UserDocuments) -> Transaction {
        let key = key_of(COMMON_DOCUMENT);
        let unchanged = match (self.changed, &self.map) {
            (Some(revision), _) => {
                Transaction::new().when(Compare::Unchanged(key.clone(), revision))
            }
            (None, map) => {
                let absent = Transaction::new().when(Compare::Absent(key.clone()));
                map.iter().fold(absent, |absent, map| {
                    absent.when(Compare::Unchanged(MAP_KEY.to_owned(), map.revision))
                })
            }
        };
        let common = next.get(COMMON_DOCUMENT).cloned().unwrap_or_default();
        unchanged.put(key, common)
    }

    /// Returns the changes that lead to other documents, without that of the common one.
    pub(super) fn changes<'d>(&'d self, next: &'d UserDocuments) -> Vec<DocumentChange<'d>> {
        let puts = next
            .iter()
            .filter(|(name, content)| self.documents.get(*name) != Some(content));
        let gone = self
            .documents
            .keys()
            .filter(|name| !next.contains_key(*name));
        puts.map(|(name, content)| (name, Some(content)))
            .chain(gone.map(|name| (name, None)))
            .filter(|(name, _)| *name != COMMON_DOCUMENT)
            .collect()
    }
}

fn key_of(document: &str) -> String {
    format!("{USERS_KEYS}{document}")
}

/// Divides changes into transactions.
pub(super) fn transactions(changes: &[DocumentChange<'_>]) -> Vec<Transaction> {
    let mut all = Vec::new();
    let (mut open, mut documents, mut bytes) = (Transaction::new(), 0, 0);
    for (name, content) in changes {
        let size = content.map_or(0, Vec::len);
        if documents == TRANSACTION_DOCUMENTS || (documents > 0 && bytes + size > TRANSACTION_BYTES)
        {
            all.push(std::mem::take(&mut open));
            (documents, bytes) = (0, 0);
        }
        open = match content {
            Some(content) => open.put(key_of(name), (*content).clone()),
            None => open.delete(key_of(name)),
        };
        documents += 1;
        bytes += size;
    }
    if documents > 0 {
        all.push(open);
    }
    all
}
