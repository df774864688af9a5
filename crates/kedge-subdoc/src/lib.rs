//! Sub-document operations as functions of a document and specs.
//!
//! [`lookup`] reads paths of one version of a document. [`SubdocMutation`] makes a new version from the existing one. The
//! vBucket runs it under its lock, so that it is atomic; either all of its specs take effect or none. Source: Couchbase
//! `docs/SubDocument.md` and `docs/ExtendedAttributes.md`.
//!
//! # Example
//!
//! ```
//! use kedge_protocol::binary::commands::subdoc::{PathFlags, SubdocOp, SubdocSpec};
//! use kedge_subdoc::{VbucketContext, lookup};
//! use kedge_types::{Cas, Datatype, Expiry, RevSeqno, Seqno, Status, VbUuid};
//! use kedge_vbucket::{Item, ItemMeta};
//!
//! let meta = ItemMeta {
//!     cas: Cas(1),
//!     seqno: Seqno(1),
//!     rev: RevSeqno(1),
//!     flags: 0,
//!     expiry: Expiry(0),
//!     datatype: Datatype::JSON,
//!     deleted: None,
//!     level: None,
//! };
//! let item = Item::new(&meta, b"\0order-17", &[br#"{"items": ["tea", "milk"]}"#]);
//!
//! let spec = |op, path| SubdocSpec { op, flags: PathFlags::NONE, path, value: b"" };
//! let specs = [spec(SubdocOp::Get, &b"items[0]"[..]), spec(SubdocOp::Get, b"price")];
//! let around = VbucketContext { uuid: VbUuid(1), unix_secs: 1_700_000_000 };
//! let mut found = Vec::new();
//! lookup(&item, item.cas(), &around, specs, &mut |status, value: &[u8]| {
//!     found.push((status, value.to_vec()));
//! })?;
//! let expected = [(Status::Success, br#""tea""#.to_vec()), (Status::SubdocPathEnoent, Vec::new())];
//! assert_eq!(found, expected);
//! # Ok::<(), Status>(())
//! ```

mod lookup;
mod macros;
mod mutation;
mod spec;
mod status;
mod virtual_xattrs;

pub use lookup::lookup;
pub use mutation::{MutationReply, SubdocMutation};
pub use spec::{OwnedSpec, check};
pub use virtual_xattrs::VbucketContext;
