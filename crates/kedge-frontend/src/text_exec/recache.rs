//! The recache states of documents, for meta commands: stale, and being recached by a client (memcached
//! doc/protocol.txt, "Meta Get": flags W, X, Z).
//!
//! States are hints and live in memory only. A state holds for one CAS: it is void when the document was written again
//! by any client, so no other part of the server needs to know of states.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kedge_sync::{RankedMutex, ranks::RecacheMap};

/// Largest number of documents with a state. When there are more, states are forgotten: a client then recaches once
/// more than necessary, or takes a stale value for a good one until it expires.
const RECACHE_STATES_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct RecacheState {
    cas: u64,
    stale: bool,
    token_sent: bool,
}

/// The flags of a reply about the state of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MetaFlags {
    /// W: this client is to recache the document.
    pub(super) won: bool,
    /// X: the value is stale.
    pub(super) stale: bool,
    /// Z: another client is to recache the document.
    pub(super) token_sent: bool,
}

/// The states of the documents of the memcached port's bucket.
#[derive(Debug, Default)]
pub(crate) struct RecacheStates {
    /// The number of states, so that a read needs no lock while there are none.
    count: AtomicUsize,
    map: RankedMutex<RecacheMap, HashMap<Box<[u8]>, RecacheState>>,
}

impl RecacheStates {
    /// A client read the document with this CAS. `recache` is true if its remaining time to live is below the client's
    /// limit for a recache.
    pub(super) fn on_read(&self, key: &[u8], cas: u64, recache: bool) -> MetaFlags {
        if !recache && self.count.load(Ordering::Relaxed) == 0 {
            return MetaFlags::default();
        }
        let mut map = self.map.lock();
        let known = match map.get(key) {
            Some(mark) if mark.cas == cas => Some(*mark),
            Some(_) => {
                map.remove(key);
                None
            }
            None => None,
        };
        let mark = known.unwrap_or(RecacheState {
            cas,
            stale: false,
            token_sent: false,
        });
        let won = (mark.stale || recache) && !mark.token_sent;
        if won {
            insert(
                &mut map,
                key,
                RecacheState {
                    token_sent: true,
                    ..mark
                },
            );
        }
        self.count.store(map.len(), Ordering::Relaxed);
        MetaFlags {
            won,
            stale: mark.stale,
            token_sent: mark.token_sent,
        }
    }

    /// A client created an empty document: it is to recache it.
    pub(super) fn on_vivified(&self, key: &[u8], cas: u64) {
        self.set(
            key,
            RecacheState {
                cas,
                stale: false,
                token_sent: true,
            },
        );
    }

    /// A client invalidated the document, which has this CAS now.
    pub(super) fn on_invalidated(&self, key: &[u8], cas: u64) {
        self.set(
            key,
            RecacheState {
                cas,
                stale: true,
                token_sent: false,
            },
        );
    }

    /// A client stored a value that is stale already, and the CAS of the document changed from `before` to `cas`. A
    /// client that was to recache it before stays the one to do so.
    pub(super) fn on_stale_stored(&self, key: &[u8], before: u64, cas: u64) {
        let mut map = self.map.lock();
        let token_sent = map
            .get(key)
            .is_some_and(|mark| mark.cas == before && mark.token_sent);
        insert(
            &mut map,
            key,
            RecacheState {
                cas,
                stale: true,
                token_sent,
            },
        );
        self.count.store(map.len(), Ordering::Relaxed);
    }

    /// A client chose the CAS of a document without a state. The CAS may be one that had a state, which is removed.
    pub(super) fn on_chosen(&self, key: &[u8]) {
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut map = self.map.lock();
            map.remove(key);
            self.count.store(map.len(), Ordering::Relaxed);
        }
    }

    fn set(&self, key: &[u8], mark: RecacheState) {
        let mut map = self.map.lock();
        insert(&mut map, key, mark);
        self.count.store(map.len(), Ordering::Relaxed);
    }
}

fn insert(map: &mut HashMap<Box<[u8]>, RecacheState>, key: &[u8], mark: RecacheState) {
    if map.len() >= RECACHE_STATES_MAX {
        map.clear();
    }
    map.insert(key.into(), mark);
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: MetaFlags = MetaFlags {
        won: false,
        stale: false,
        token_sent: false,
    };
    const WON: MetaFlags = MetaFlags {
        won: true,
        stale: false,
        token_sent: false,
    };
    const SENT: MetaFlags = MetaFlags {
        won: false,
        stale: false,
        token_sent: true,
    };

    #[test]
    fn one_client_wins_the_recache() {
        let states = RecacheStates::default();
        assert_eq!(states.on_read(b"k", 1, false), NOTHING);
        assert_eq!(states.on_read(b"k", 1, true), WON);
        assert_eq!(states.on_read(b"k", 1, true), SENT);
        assert_eq!(states.on_read(b"k", 1, false), SENT);
        assert_eq!(states.on_read(b"other", 1, false), NOTHING);
        states.on_vivified(b"v", 7);
        assert_eq!(states.on_read(b"v", 7, false), SENT);
    }

    #[test]
    fn stale_document_is_recached_by_one_client() {
        let states = RecacheStates::default();
        states.on_invalidated(b"k", 2);
        assert_eq!(
            states.on_read(b"k", 2, false),
            MetaFlags { stale: true, ..WON }
        );
        assert_eq!(
            states.on_read(b"k", 2, false),
            MetaFlags {
                stale: true,
                ..SENT
            }
        );
        assert_eq!(
            states.on_read(b"k", 3, false),
            NOTHING,
            "it was written again"
        );
        assert_eq!(
            states.on_read(b"k", 2, false),
            NOTHING,
            "and the mark is gone"
        );
    }

    #[test]
    fn storing_a_stale_value_gives_no_second_win() {
        let states = RecacheStates::default();
        states.on_invalidated(b"k", 2);
        assert!(states.on_read(b"k", 2, false).won);
        states.on_stale_stored(b"k", 2, 3);
        let told = MetaFlags {
            stale: true,
            ..SENT
        };
        assert_eq!(states.on_read(b"k", 3, false), told);
        states.on_stale_stored(b"other", 1, 2);
        let told = MetaFlags { stale: true, ..WON };
        assert_eq!(states.on_read(b"other", 2, false), told);
        states.on_chosen(b"other");
        assert_eq!(states.on_read(b"other", 2, false), NOTHING);
    }

    #[test]
    fn recache_states_are_limited() {
        let states = RecacheStates::default();
        for number in 0..=RECACHE_STATES_MAX as u64 {
            states.on_vivified(&number.to_be_bytes(), 1);
        }
        assert_eq!(states.map.lock().len(), 1);
    }
}
