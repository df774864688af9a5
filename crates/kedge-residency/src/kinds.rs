//! The kinds of the tasks of residency.

use kedge_executor::{Pool, Priority, TaskKind};
use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Expired documents and old tombstones are deleted.
pub(crate) static EXPIRY_SWEEP: TaskKind =
    TaskKind::new("expiry_sweep", Pool::NonIo, Priority::Low, ms(100));
/// Documents of dropped collections are removed from memory.
pub(crate) static DROPPED_SWEEP: TaskKind =
    TaskKind::new("dropped_sweep", Pool::NonIo, Priority::Low, ms(100));
/// Documents that commands wait for are read. A run is at least one read of a file.
pub(crate) static BG_FETCH: TaskKind =
    TaskKind::new("bg_fetch", Pool::Reader, Priority::High, ms(250));
/// Writes that waited for memory are resumed.
pub(crate) static MEMORY_ADMISSION: TaskKind =
    TaskKind::new("memory_admission", Pool::NonIo, Priority::High, ms(100));
/// Documents that are seldom used are evicted.
pub(crate) static ITEM_PAGER: TaskKind =
    TaskKind::new("item_pager", Pool::NonIo, Priority::Normal, ms(100));
/// Values are compressed in memory. A run is a chunk.
pub(crate) static ITEM_COMPRESSOR: TaskKind =
    TaskKind::new("item_compressor", Pool::NonIo, Priority::Low, ms(100));
/// Documents move within memory. A run is a chunk.
pub(crate) static DEFRAGMENTER: TaskKind =
    TaskKind::new("defragmenter", Pool::NonIo, Priority::Low, ms(100));
/// The keys in memory are written to the access log. A run is a slice.
pub(crate) static ACCESS_SCANNER: TaskKind =
    TaskKind::new("access_scanner", Pool::AuxIo, Priority::Low, ms(500));
/// Documents are read into memory while commands run, after a start or from a file that was copied from another node. A run
/// is a slice.
pub(crate) static WARMUP_DOCUMENTS: TaskKind =
    TaskKind::new("warmup_documents", Pool::AuxIo, Priority::Normal, ms(500));
