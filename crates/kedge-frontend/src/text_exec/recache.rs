//! What meta commands remember of a document beside the document: that it is stale, and that a client was asked to
//! recache it (memcached doc/protocol.txt, "Meta Get": flags W, X, Z).
//!
//! RecacheStates are hints and live in memory only. A mark holds for one CAS: it is void once the document was written again,
//! by whomever, so nothing else in the server needs to know of states.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use kedge_sync::{RankedMutex, ranks::RecacheMap};

/// Most documents that are marked at a time. When there are more, states are forgotten: some client then recaches once
/// more than it had to, or takes a stale value for a good one until it expires.
const RECACHE_STATES_MAX: usize = 1 << 16;

#[derive(Clone, Copy, Debug)]
struct RecacheState {
    cas: u64,
    stale: bool,
    token_sent: bool,
}

/// The flags that a client is sent about a document's states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MetaFlags {
    /// W: it has won the right to recache.
    pub(super) won: bool,
    /// X: what it got is stale.
    pub(super) stale: bool,
    /// Z: another has won it.
    pub(super) token_sent: bool,
}

/// The states of the documents of the memcached port's bucket.
#[derive(Debug, Default)]
pub(crate) struct RecacheStates {
    /// Kept beside the map, so that reading costs no lock while there is none.
    count: AtomicUsize,
    map: RankedMutex<RecacheMap, HashMap<Box<[u8]>, RecacheState>>,
}

impl RecacheStates {
    /// A client read the document of this CAS; `recache` is whether so little of its time is left that the client
    /// wants to recache it.
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

    /// A client made an empty document, to fill it: it has won.
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

    /// A client said that the document, which has this CAS now, is stale.
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

    /// A client stored a value that was stale already: the document had this CAS before and has the other now. Who was
    /// asked to recache it before is not asked again.
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

    /// A client chose the CAS of a document that is neither stale nor to be recached: it may be one that was marked.
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
    fn one_client_wins() {
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
    fn a_stale_document_is_recached_by_one() {
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
    fn a_stale_value_hands_out_no_second_win() {
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
    fn there_are_never_more_than_the_limit() {
        let states = RecacheStates::default();
        for number in 0..=RECACHE_STATES_MAX as u64 {
            states.on_vivified(&number.to_be_bytes(), 1);
        }
        assert_eq!(states.map.lock().len(), 1);
    }
}
