//! The codecs of requests and replies, one command family per file.
//!
//! `decode` checks a [`super::Request`] (lengths, required and forbidden parts, datatype bits, CAS) and gives its
//! fields types; the returned status is the reply to an invalid request. `encode` writes the request for a client:
//! opcode, vBucket, opaque and framing extras come from the [`super::RequestWriter`], CAS and datatype from the command
//! where it has them. The caller checks that datatype bits were negotiated ([`super::Request::datatype`]), and the form
//! of a key (with or without collection prefix).

mod arithmetic;
mod collections;
mod compact;
mod concat;
mod config;
pub mod dcp;
mod file_copy;
mod flush;
mod get;
mod hello;
mod keys;
mod lock;
mod meta;
mod misc;
mod mutate_with_meta;
mod observe;
mod random_key;
pub mod range_scan;
mod remove;
mod return_meta;
mod sasl;
mod seqno;
mod stat;
mod store;
pub mod subdoc;
mod touch;
mod vbucket;

pub use arithmetic::{Arithmetic, decode_counter, encode_counter};
pub use collections::{
    CollectionIdReply, GetCollectionId, GetManifest, GetScopeId, ScopeIdReply, SetManifest,
};
pub use compact::CompactDb;
pub use concat::Concat;
pub use config::{GetClusterConfig, GetErrorMap, SelectBucket};
pub use file_copy::{FileFragment, GetFileFragment, PreparedSnapshot, ReleaseSnapshot};
pub use flush::Flush;
pub use get::{Get, GetReply};
pub use hello::{Agent, Hello};
pub use keys::{GetKeys, KeyList, push_key};
pub use lock::{GetLocked, Unlock};
pub use meta::{GetMeta, GetMetaReply, MetaVersion, WithMeta, WithMetaOptions};
pub use misc::{GetCmdTimer, HeaderOnly, Verbosity};
pub use mutate_with_meta::{MutateKind, MutateWithMeta};
pub use observe::{KeyState, Observe, ObserveReply, ObserveSeqno, ObserveSeqnoReply, ObservedKey};
pub use random_key::GetRandomKey;
pub use remove::Remove;
pub use return_meta::{ReturnMeta, ReturnMetaKind, ReturnMetaReply};
pub use sasl::SaslStart;
pub use seqno::{
    FailoverEntry, GetAllVbSeqnos, SeqnoPersistence, VbStateFilter, decode_failover_log,
    decode_vb_seqnos, push_failover_entry, push_vb_seqno,
};
pub use stat::Stat;
pub use store::{MutationToken, Store};
pub use touch::Touch;
pub use vbucket::{DelVbucket, SetVbucket, SetVbucketDetails, SnapshotSource};
