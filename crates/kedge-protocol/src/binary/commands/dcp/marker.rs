//! DCP_SNAPSHOT_MARKER.

use super::{DcpHeader, Extras};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::flags::flag_set;
use crate::binary::{Opcode, Request};
use kedge_types::{Seqno, Status};

/// The newest layout that a consumer knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkerVersion {
    /// Start, end and flags.
    #[default]
    V1,
    /// The fields of version 1, the highest visible and the highest completed seqno.
    V2_0,
    /// The fields of version 2.0, the purge seqno and the highest prepared seqno.
    V2_2,
}

/// The properties of a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFlags(pub u32);

flag_set!(SnapshotFlags);

impl SnapshotFlags {
    /// The snapshot was read from memory.
    pub const MEMORY: Self = Self(0x01);
    /// The snapshot was read from disk: it has only the newest change of each key.
    pub const DISK: Self = Self(0x02);
    /// The receiver begins a checkpoint with the snapshot.
    pub const CHECKPOINT: Self = Self(0x04);
    /// The receiver acknowledges the marker. Unused.
    pub const ACK: Self = Self(0x08);
    /// The snapshot has older versions of documents.
    pub const HISTORY: Self = Self(0x10);
    /// The snapshot may have a key more than once.
    pub const MAY_HAVE_DUPLICATES: Self = Self(0x20);
}

/// The additional fields of markers of version 2.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisibleMarker {
    /// The last seqno in the snapshot that is visible to clients without SyncWrites.
    pub max_visible: Seqno,
    /// The last completed prepare of a disk snapshot.
    pub high_completed: Seqno,
    /// The additional fields of markers of version 2.2.
    pub disk: Option<DiskMarker>,
}

/// The additional fields of markers of version 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskMarker {
    /// Tombstones up to this seqno may be missing.
    pub purge: Seqno,
    /// The last prepare that the sender has acknowledged.
    pub high_prepared: Seqno,
}

/// The start of a snapshot: a run of changes at whose end the receiver has a consistent state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotMarker {
    /// The lowest seqno that a change of the snapshot may have.
    pub start: Seqno,
    /// The highest seqno that a change of the snapshot may have.
    pub end: Seqno,
    /// The properties of the snapshot.
    pub flags: SnapshotFlags,
    /// The additional fields of a marker of version 2.
    pub visible: Option<VisibleMarker>,
}

const VERSION_2_0: u8 = 0;
const VERSION_2_2: u8 = 2;
/// The length of a marker's fields in bytes, for each version.
const V1_BYTES: usize = 20;
const V2_0_BYTES: usize = 36;
const V2_2_BYTES: usize = 52;

impl SnapshotMarker {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when extras and value are none of the known versions, the snapshot ends before it starts, or
    /// anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[1, V1_BYTES],
            value: PartRule::Optional,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let (version, mut fields) = match (request.extras, request.value) {
            (&[VERSION_2_0], value) => (MarkerVersion::V2_0, FieldReader::new(value)),
            (&[VERSION_2_2], value) => (MarkerVersion::V2_2, FieldReader::new(value)),
            (&[_], _) => return Err(Status::Invalid),
            (extras, []) => (MarkerVersion::V1, FieldReader::new(extras)),
            _ => return Err(Status::Invalid),
        };
        let mut marker = Self {
            start: Seqno(fields.u64()?),
            end: Seqno(fields.u64()?),
            flags: SnapshotFlags(fields.u32()?),
            visible: None,
        };
        if version >= MarkerVersion::V2_0 {
            marker.visible = Some(VisibleMarker::decode(&mut fields, version)?);
        }
        if marker.start > marker.end {
            return Err(Status::Invalid);
        }
        fields.end(marker)
    }

    /// Appends the request, in the lowest version that has all fields that are set.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let writer = head.writer(Opcode::DcpSnapshotMarker);
        let fields = Extras::<V2_2_BYTES>::new()
            .u64(self.start.get())
            .u64(self.end.get())
            .u32(self.flags.0);
        let Some(visible) = self.visible else {
            return writer.write(fields.bytes(), &[], &[], out);
        };
        let fields = fields
            .u64(visible.max_visible.get())
            .u64(visible.high_completed.get());
        let Some(disk) = visible.disk else {
            debug_assert_eq!(fields.len, V2_0_BYTES);
            return writer.write(&[VERSION_2_0], &[], fields.bytes(), out);
        };
        let fields = fields.u64(disk.purge.get()).u64(disk.high_prepared.get());
        writer.write(&[VERSION_2_2], &[], fields.bytes(), out);
    }
}

impl VisibleMarker {
    fn decode(fields: &mut FieldReader<'_>, version: MarkerVersion) -> Result<Self, Status> {
        let mut visible = Self {
            max_visible: Seqno(fields.u64()?),
            high_completed: Seqno(fields.u64()?),
            disk: None,
        };
        if version >= MarkerVersion::V2_2 {
            visible.disk = Some(DiskMarker {
                purge: Seqno(fields.u64()?),
                high_prepared: Seqno(fields.u64()?),
            });
        }
        Ok(visible)
    }
}
