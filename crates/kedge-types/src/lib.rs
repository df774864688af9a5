//! The basic types that all crates share: newtypes, limits, clocks.
//!
//! Nothing here does I/O or starts a thread. A number that has a meaning has a type, so that a seqno cannot be passed
//! where a CAS is expected. Every limit of the server is a constant of [`limits`].
//!
//! # Example
//!
//! ```
//! use kedge_types::{CollectionId, DocKey, limits};
//!
//! let key = DocKey::new(CollectionId(9), b"order-17")?;
//! assert_eq!(key.logical(), b"order-17");
//! assert_eq!(key.as_bytes(), b"\x09order-17", "the collection id comes first");
//!
//! // The vBucket is computed from the key without its collection.
//! let vb = key.vbucket(1024);
//! assert_eq!(vb, DocKey::new(CollectionId(0), b"order-17")?.vbucket(1024));
//!
//! let too_long = vec![b'k'; limits::KEY_BYTES_MAX + 1];
//! assert!(DocKey::new(CollectionId(0), &too_long).is_err());
//! # Ok::<(), kedge_types::KeyError>(())
//! ```

mod clock;
mod datatype;
mod durability;
mod expiry;
mod ids;
mod key;
mod leb128;
pub mod limits;
mod manifest;
pub mod setting;
mod status;
mod xattr;

pub use clock::{Clock, ManualClock, Now, SystemClock};
pub use datatype::Datatype;
pub use durability::{Durability, DurabilityLevel};
pub use expiry::Expiry;
pub use ids::{Cas, CollectionId, RevSeqno, Seqno, VbId, VbUuid};
pub use key::{DocKey, KeyBuffer, KeyError};
pub use leb128::{LEB128_MAX_BYTES, decode_leb128, encode_leb128};
pub use manifest::{Collection, Manifest, ManifestUid, Scope, ScopeId};
pub use status::Status;
pub use xattr::{
    Xattrs, XattrsBuf, check_xattr_name, check_xattr_sizes, is_system_xattr, split_xattrs,
};
