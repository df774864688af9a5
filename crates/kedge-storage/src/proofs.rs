//! Code that the compiler must reject, for tests only. This code compiles:
//!
//! ```no_run
//! use kedge_storage::proofs::{guard, header};
//! use kedge_storage::{Storage, StorageError};
//! use kedge_types::VbId;
//!
//! fn write(storage: &Storage) -> Result<(), StorageError> {
//!     let mut guard = guard(storage, VbId(0));
//!     let writer = guard.writer()?;
//!     header(&writer);
//!     let new = guard.create()?;
//!     header(&new);
//!     guard.remove()?;
//!     drop(guard);
//!     Ok(())
//! }
//! ```
//!
//! The other examples differ from it only in the order of the lines, so the compiler rejects the order.
//!
//! A writer that outlives its guard:
//!
//! ```compile_fail,E0505
//! use kedge_storage::proofs::{guard, header};
//! use kedge_storage::{Storage, StorageError};
//! use kedge_types::VbId;
//!
//! fn write(storage: &Storage) -> Result<(), StorageError> {
//!     let mut guard = guard(storage, VbId(0));
//!     let writer = guard.writer()?;
//!     drop(guard);
//!     header(&writer);
//!     Ok(())
//! }
//! ```
//!
//! The writer of a new file, likewise:
//!
//! ```compile_fail,E0505
//! use kedge_storage::proofs::{guard, header};
//! use kedge_storage::{Storage, StorageError};
//! use kedge_types::VbId;
//!
//! fn write(storage: &Storage) -> Result<(), StorageError> {
//!     let mut guard = guard(storage, VbId(0));
//!     let new = guard.create()?;
//!     drop(guard);
//!     header(&new);
//!     Ok(())
//! }
//! ```
//!
//! A writer to a file that is no longer the vBucket's, under the same guard:
//!
//! ```compile_fail,E0499
//! use kedge_storage::proofs::{guard, header};
//! use kedge_storage::{Storage, StorageError};
//! use kedge_types::VbId;
//!
//! fn write(storage: &Storage) -> Result<(), StorageError> {
//!     let mut guard = guard(storage, VbId(0));
//!     let writer = guard.writer()?;
//!     guard.remove()?;
//!     header(&writer);
//!     drop(guard);
//!     Ok(())
//! }
//! ```
//!
//! Two writers at once:
//!
//! ```compile_fail,E0499
//! use kedge_storage::proofs::{guard, header};
//! use kedge_storage::{Storage, StorageError};
//! use kedge_types::VbId;
//!
//! fn write(storage: &Storage) -> Result<(), StorageError> {
//!     let mut guard = guard(storage, VbId(0));
//!     let writer = guard.writer()?;
//!     let new = guard.create()?;
//!     header(&writer);
//!     header(&new);
//!     drop(guard);
//!     Ok(())
//! }
//! ```

use kedge_couchstore::{Header, Writer};
use kedge_types::VbId;

use crate::Storage;
pub use crate::slot::{SlotWriter, WriteGuard};

/// Acquires the write lock of a vBucket's file.
pub fn guard(storage: &Storage, vb: VbId) -> WriteGuard<'_> {
    storage.writer(vb)
}

/// Uses a writer.
pub fn header(writer: &Writer) -> &Header {
    writer.header()
}
