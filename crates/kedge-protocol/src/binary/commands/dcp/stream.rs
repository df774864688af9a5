//! DCP_ADD_STREAM, DCP_STREAM_REQ, DCP_STREAM_END, DCP_SET_VBUCKET_STATE, DCP_SEQNO_ADVANCED, DCP_OSO_SNAPSHOT: the
//! life of a stream.

use super::{DcpHeader, Extras, extras_only};
use crate::binary::fields::{FieldReader, PartRule, RequestShape};
use crate::binary::flags::flag_set;
use crate::binary::{Opcode, Request};
use kedge_types::{Datatype, Seqno, Status, VbUuid};

/// Flags of DCP_STREAM_REQ and DCP_ADD_STREAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFlags(pub u32);

flag_set!(StreamFlags);

impl StreamFlags {
    /// The receiver becomes the active of the vBucket at the end of the stream.
    pub const TAKEOVER: Self = Self(0x01);
    /// The stream sends only data on disk.
    pub const DISK_ONLY: Self = Self(0x02);
    /// The stream ends at the high seqno that the vBucket has when the stream begins.
    pub const TO_LATEST: Self = Self(0x04);
    /// The receiver wants no values. Obsolete: DCP_OPEN has this flag now.
    pub const NO_VALUE: Self = Self(0x08);
    /// Only an active vBucket may serve the stream.
    pub const ACTIVE_ONLY: Self = Self(0x10);
    /// The vBucket uuid is compared at seqno 0 too.
    pub const STRICT_VB_UUID: Self = Self(0x20);
    /// The stream starts at the high seqno that the vBucket has when the stream begins.
    pub const FROM_LATEST: Self = Self(0x40);
    /// The receiver does not need purged tombstones.
    pub const IGNORE_PURGED_TOMBSTONES: Self = Self(0x80);
    /// A cache transfer precedes the stream.
    pub const CACHE_TRANSFER: Self = Self(0x100);
    /// Every flag there is.
    pub const ALL: Self = Self(0x1ff);
}

/// A request to the consumer to open a stream. The reply's extras are the opaque of that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddStream {
    /// The flags of the stream.
    pub flags: StreamFlags,
}

impl AddStream {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[4]).check(request)?;
        Ok(Self {
            flags: StreamFlags(FieldReader::new(request.extras).u32()?),
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpAddStream)
            .write(&self.flags.0.to_be_bytes(), &[], &[], out);
    }
}

/// A request for the changes of a vBucket after a seqno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcpStreamRequest<'a> {
    /// The flags of the stream.
    pub flags: StreamFlags,
    /// The seqno up to which the receiver has everything.
    pub start: Seqno,
    /// The last seqno of the stream; [`DcpStreamRequest::NO_END`] if it has no end.
    pub end: Seqno,
    /// The branch of history that `start` is on.
    pub vb_uuid: VbUuid,
    /// The start of the last snapshot of which the receiver has a part.
    pub snap_start: Seqno,
    /// The end of that snapshot.
    pub snap_end: Seqno,
    /// The filter of the stream, as JSON ([`super::StreamFilter`]); empty for the whole vBucket.
    pub filter: &'a [u8],
}

impl<'a> DcpStreamRequest<'a> {
    /// The end seqno of a stream without an end.
    pub const NO_END: Seqno = Seqno(u64::MAX);

    /// Checks and reads the request. The producer checks that its seqnos fit each other.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 48 bytes, or there is a key, a CAS or a datatype.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: RequestShape = RequestShape {
            extras: &[48],
            value: PartRule::Optional,
            datatype: Datatype::JSON,
            ..RequestShape::EMPTY
        };
        SHAPE.check(request)?;
        let mut extras = FieldReader::new(request.extras);
        let flags = StreamFlags(extras.u32()?);
        // Reserved.
        extras.u32()?;
        Ok(Self {
            flags,
            start: Seqno(extras.u64()?),
            end: Seqno(extras.u64()?),
            vb_uuid: VbUuid(extras.u64()?),
            snap_start: Seqno(extras.u64()?),
            snap_end: Seqno(extras.u64()?),
            filter: request.value,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let extras = Extras::<48>::new()
            .u32(self.flags.0)
            .u32(0)
            .u64(self.start.get())
            .u64(self.end.get())
            .u64(self.vb_uuid.get())
            .u64(self.snap_start.get())
            .u64(self.snap_end.get());
        head.writer(Opcode::DcpStreamReq)
            .write(extras.bytes(), &[], self.filter, out);
    }
}

/// The reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EndReason {
    /// All requested changes were sent.
    Ok = 0,
    /// The consumer closed the stream.
    Closed = 1,
    /// The state of the vBucket on its node changed.
    StateChanged = 2,
    /// The connection ended.
    Disconnected = 3,
    /// The consumer was too slow.
    Slow = 4,
    /// The data on disk could not be read.
    BackfillFailed = 5,
    /// The vBucket was rolled back to an earlier seqno.
    Rollback = 6,
    /// Every collection of the filter was dropped.
    FilterEmpty = 7,
    /// The user lost the privilege to read the data.
    LostPrivileges = 8,
}

impl EndReason {
    /// Returns the reason with this number on the wire.
    #[must_use]
    pub const fn from_wire(reason: u32) -> Option<Self> {
        match reason {
            0 => Some(Self::Ok),
            1 => Some(Self::Closed),
            2 => Some(Self::StateChanged),
            3 => Some(Self::Disconnected),
            4 => Some(Self::Slow),
            5 => Some(Self::BackfillFailed),
            6 => Some(Self::Rollback),
            7 => Some(Self::FilterEmpty),
            8 => Some(Self::LostPrivileges),
            _ => None,
        }
    }
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// The reason.
    pub reason: EndReason,
}

impl StreamEnd {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, the reason is undefined, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[4]).check(request)?;
        let reason = EndReason::from_wire(FieldReader::new(request.extras).u32()?);
        Ok(Self {
            reason: reason.ok_or(Status::Invalid)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let reason = (self.reason as u32).to_be_bytes();
        head.writer(Opcode::DcpStreamEnd)
            .write(&reason, &[], &[], out);
    }
}

/// A request at the end of a takeover: the receiver sets the state of the vBucket, and replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetVbucketState {
    /// The state: 1 active, 2 replica, 3 pending, 4 dead.
    pub state: u8,
}

impl SetVbucketState {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not one byte from 1 to 4, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[1]).check(request)?;
        match FieldReader::new(request.extras).u8()? {
            state @ 1..=4 => Ok(Self { state }),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpSetVbucketState)
            .write(&[self.state], &[], &[], out);
    }
}

/// The snapshot reaches up to this seqno, although the receiver gets no change with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoAdvanced {
    /// The seqno.
    pub seqno: Seqno,
}

impl SeqnoAdvanced {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not eight bytes, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[8]).check(request)?;
        Ok(Self {
            seqno: Seqno(FieldReader::new(request.extras).u64()?),
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        let seqno = self.seqno.get().to_be_bytes();
        head.writer(Opcode::DcpSeqnoAdvanced)
            .write(&seqno, &[], &[], out);
    }
}

/// The start or end of a snapshot in key order (out of sequence order).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OsoSnapshot {
    /// The snapshot begins.
    Start = 1,
    /// The snapshot is complete.
    End = 2,
}

impl OsoSnapshot {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes with 1 or 2, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[4]).check(request)?;
        match FieldReader::new(request.extras).u32()? {
            1 => Ok(Self::Start),
            2 => Ok(Self::End),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request.
    pub fn encode(&self, head: &DcpHeader, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpOsoSnapshot)
            .write(&(*self as u32).to_be_bytes(), &[], &[], out);
    }
}
