//! DCP_ADD_STREAM, DCP_STREAM_REQ, DCP_STREAM_END, DCP_SET_VBUCKET_STATE, DCP_SEQNO_ADVANCED, DCP_OSO_SNAPSHOT: a
//! stream's life.

use super::{Extras, Head, extras_only};
use crate::binary::fields::{Fields, Part, Shape};
use crate::binary::flags::flag_set;
use crate::binary::{Opcode, Request};
use kedge_types::{Datatype, Seqno, Status, VbUuid};

/// Flags of DCP_STREAM_REQ and DCP_ADD_STREAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFlags(pub u32);

flag_set!(StreamFlags);

impl StreamFlags {
    /// At its end the receiver becomes the active of the vBucket.
    pub const TAKEOVER: Self = Self(0x01);
    /// Only what is on the disk.
    pub const DISK_ONLY: Self = Self(0x02);
    /// It ends at the seqno that is the last one when it begins.
    pub const TO_LATEST: Self = Self(0x04);
    /// Values are not wanted; old, DCP_OPEN says that now.
    pub const NO_VALUE: Self = Self(0x08);
    /// Only from an active vBucket.
    pub const ACTIVE_ONLY: Self = Self(0x10);
    /// The uuid is compared at seqno 0 too.
    pub const STRICT_VB_UUID: Self = Self(0x20);
    /// It starts at the seqno that is the last one when it begins.
    pub const FROM_LATEST: Self = Self(0x40);
    /// Tombstones that are purged do not matter to the receiver.
    pub const IGNORE_PURGED_TOMBSTONES: Self = Self(0x80);
    /// What is in memory comes first.
    pub const CACHE_TRANSFER: Self = Self(0x100);
    /// Every flag there is.
    pub const ALL: Self = Self(0x1ff);
}

/// Tells a consumer to ask for a stream. The reply's extras are the opaque of that stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddStream {
    /// For the stream.
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
            flags: StreamFlags(Fields::new(request.extras).u32()?),
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpAddStream)
            .write(&self.flags.0.to_be_bytes(), &[], &[], out);
    }
}

/// Asks for the changes of a vBucket behind a seqno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRequest<'a> {
    /// What kind of stream.
    pub flags: StreamFlags,
    /// The receiver has everything up to here.
    pub start: Seqno,
    /// The stream ends behind this seqno; [`StreamRequest::NO_END`] for never.
    pub end: Seqno,
    /// The branch of history that `start` is on.
    pub vb_uuid: VbUuid,
    /// Where the last snapshot that the receiver has something of started.
    pub snap_start: Seqno,
    /// Where it ended.
    pub snap_end: Seqno,
    /// What of the vBucket, as JSON ([`super::StreamFilter`]); empty for everything.
    pub filter: &'a [u8],
}

impl<'a> StreamRequest<'a> {
    /// The end of a stream that has none.
    pub const NO_END: Seqno = Seqno(u64::MAX);

    /// Checks and reads the request. Whether its seqnos fit each other is for the producer to say.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not 48 bytes, or anything but a value is there.
    pub fn decode(request: &Request<'a>) -> Result<Self, Status> {
        const SHAPE: Shape = Shape {
            extras: &[48],
            value: Part::Optional,
            datatype: Datatype::JSON,
            ..Shape::EMPTY
        };
        SHAPE.check(request)?;
        let mut extras = Fields::new(request.extras);
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
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
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

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EndReason {
    /// It was sent to its end.
    Ok = 0,
    /// The consumer closed it.
    Closed = 1,
    /// The vBucket is something else to its node now.
    StateChanged = 2,
    /// The connection ended.
    Disconnected = 3,
    /// The consumer was too slow.
    Slow = 4,
    /// What is on the disk could not be read.
    BackfillFailed = 5,
    /// The vBucket went back to an earlier seqno.
    Rollback = 6,
    /// Every collection that it was about is gone.
    FilterEmpty = 7,
    /// The user may not see this any more.
    LostPrivileges = 8,
}

impl EndReason {
    /// The reason with this number on the wire.
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

/// Nothing follows in this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEnd {
    /// Why.
    pub reason: EndReason,
}

impl StreamEnd {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes, the reason has no meaning, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[4]).check(request)?;
        let reason = EndReason::from_wire(Fields::new(request.extras).u32()?);
        Ok(Self {
            reason: reason.ok_or(Status::Invalid)?,
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
        let reason = (self.reason as u32).to_be_bytes();
        head.writer(Opcode::DcpStreamEnd)
            .write(&reason, &[], &[], out);
    }
}

/// At the end of a takeover: the receiver gives the vBucket a state, and answers.
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
        match Fields::new(request.extras).u8()? {
            state @ 1..=4 => Ok(Self { state }),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request.
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpSetVbucketState)
            .write(&[self.state], &[], &[], out);
    }
}

/// The snapshot reaches to here, though the receiver gets no change with this seqno.
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
            seqno: Seqno(Fields::new(request.extras).u64()?),
        })
    }

    /// Appends the request.
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
        let seqno = self.seqno.get().to_be_bytes();
        head.writer(Opcode::DcpSeqnoAdvanced)
            .write(&seqno, &[], &[], out);
    }
}

/// A snapshot in the order of keys begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OsoSnapshot {
    /// It begins.
    Start = 1,
    /// It is complete.
    End = 2,
}

impl OsoSnapshot {
    /// Checks and reads the request.
    ///
    /// # Errors
    /// [`Status::Invalid`] when the extras are not four bytes with 1 or 2, or anything else is there.
    pub fn decode(request: &Request<'_>) -> Result<Self, Status> {
        extras_only(&[4]).check(request)?;
        match Fields::new(request.extras).u32()? {
            1 => Ok(Self::Start),
            2 => Ok(Self::End),
            _ => Err(Status::Invalid),
        }
    }

    /// Appends the request.
    pub fn encode(&self, head: &Head, out: &mut Vec<u8>) {
        head.writer(Opcode::DcpOsoSnapshot)
            .write(&(*self as u32).to_be_bytes(), &[], &[], out);
    }
}
