//! Writing replies and server requests.

use super::frame::{HEADER_BYTES, Magic};
use kedge_types::{Cas, Datatype, Status};

/// The first byte of the frame info with the server duration: id 0, two bytes.
const SERVER_DURATION_INFO: u8 = 0x02;
const SERVER_DURATION_INFO_BYTES: usize = 3;

/// A reply to a client.
#[derive(Clone, Copy, Debug)]
pub struct Response<'a> {
    /// The opcode of the request, also if it is an unknown one.
    pub opcode: u8,
    /// Status.
    pub status: Status,
    /// The request's opaque.
    pub opaque: u32,
    /// The CAS, 0 if there is none.
    pub cas: Cas,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// The encoded server duration ([`super::ServerDuration::encode`]), for a connection that negotiated Tracing.
    /// The reply then has magic 0x18; otherwise 0x81.
    pub server_duration: Option<u16>,
    /// Extras, at most 255 bytes.
    pub extras: &'a [u8],
    /// Key. At most 255 bytes with a server duration (the duration is left out for a longer one), else 65,535.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl<'a> Response<'a> {
    /// Creates a reply without extras, key, value, CAS or duration.
    #[must_use]
    #[inline]
    pub const fn new(opcode: u8, opaque: u32, status: Status) -> Self {
        Self {
            opcode,
            status,
            opaque,
            cas: Cas(0),
            datatype: Datatype::RAW,
            server_duration: None,
            extras: &[],
            key: &[],
            value: &[],
        }
    }

    /// Appends the whole frame.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_head(self.value.len(), out);
        out.extend_from_slice(self.value);
    }

    /// Appends everything but the value, and reserves room for a value of `value_len` bytes, which the caller sends
    /// next (directly, or by appending it to `out`). [`Response::value`] is ignored.
    ///
    /// # Panics
    /// When extras, key or the whole body are too long for their fields in the header.
    #[inline]
    pub fn write_head(&self, value_len: usize, out: &mut Vec<u8>) {
        let key_len = self.key.len();
        let duration = self
            .server_duration
            .filter(|_| key_len <= usize::from(u8::MAX));
        let framing_len = if duration.is_some() {
            SERVER_DURATION_INFO_BYTES
        } else {
            0
        };
        let body = framing_len + self.extras.len() + key_len + value_len;
        out.reserve(HEADER_BYTES + body);

        // Header and framing extras are copied together.
        let mut head = [0; HEADER_BYTES + SERVER_DURATION_INFO_BYTES];
        if let Some(duration) = duration {
            head[0] = Magic::AltClientResponse.wire();
            head[2] = SERVER_DURATION_INFO_BYTES as u8;
            head[3] = key_len as u8;
            head[24] = SERVER_DURATION_INFO;
            head[25..27].copy_from_slice(&duration.to_be_bytes());
        } else {
            head[0] = Magic::ClientResponse.wire();
            head[2..4].copy_from_slice(&len16(key_len).to_be_bytes());
        }
        head[1] = self.opcode;
        head[4] = len8(self.extras.len());
        head[5] = self.datatype.bits();
        head[6..8].copy_from_slice(&self.status.wire().to_be_bytes());
        head[8..12].copy_from_slice(&len32(body).to_be_bytes());
        head[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        head[16..24].copy_from_slice(&self.cas.get().to_be_bytes());
        out.extend_from_slice(&head[..HEADER_BYTES + framing_len]);
        out.extend_from_slice(self.extras);
        out.extend_from_slice(self.key);
    }
}

// Replies are made by this server, so lengths that do not fit are bugs, not input.

#[inline]
pub(super) fn len8(len: usize) -> u8 {
    u8::try_from(len).expect("extras fit their length byte")
}

#[inline]
pub(super) fn len16(len: usize) -> u16 {
    u16::try_from(len).expect("a key fits its length field")
}

#[inline]
pub(super) fn len32(len: usize) -> u32 {
    u32::try_from(len).expect("a body fits its length field")
}

/// The number of CLUSTERMAP_CHANGE_NOTIFICATION among the server's opcodes.
pub const SERVER_OPCODE_CLUSTERMAP_CHANGE_NOTIFICATION: u8 = 0x01;

/// A request of the server to a client that negotiated Duplex (magic 0x82).
#[derive(Clone, Copy, Debug)]
pub struct ServerRequest<'a> {
    /// Number of the command among the server's opcodes.
    pub opcode: u8,
    /// The opaque, which the reply repeats, if there is one.
    pub opaque: u32,
    /// The datatype of the value.
    pub datatype: Datatype,
    /// Extras, at most 255 bytes.
    pub extras: &'a [u8],
    /// Key.
    pub key: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

impl ServerRequest<'_> {
    /// Appends the whole frame.
    ///
    /// # Panics
    /// When extras, key or the whole body are too long for their fields in the header.
    pub fn write(&self, out: &mut Vec<u8>) {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut head = [0; HEADER_BYTES];
        head[0] = Magic::ServerRequest.wire();
        head[1] = self.opcode;
        head[2..4].copy_from_slice(&len16(self.key.len()).to_be_bytes());
        head[4] = len8(self.extras.len());
        head[5] = self.datatype.bits();
        head[8..12].copy_from_slice(&len32(body).to_be_bytes());
        head[12..16].copy_from_slice(&self.opaque.to_be_bytes());
        out.reserve(HEADER_BYTES + body);
        out.extend_from_slice(&head);
        out.extend_from_slice(self.extras);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }
}

/// The push of a new cluster map to a client.
#[derive(Clone, Copy, Debug)]
pub struct ClustermapChangeNotification<'a> {
    /// Epoch of the map.
    pub epoch: i64,
    /// Revision of the map.
    pub rev: i64,
    /// The bucket of the map; empty for the cluster-level map.
    pub bucket: &'a [u8],
    /// The map (JSON text), or `None` in brief mode: the client then asks for it.
    pub map: Option<&'a [u8]>,
    /// True if the map is one raw Snappy block (needs SnappyEverywhere).
    pub snappy: bool,
}

impl ClustermapChangeNotification<'_> {
    /// Appends the frame: extras are epoch and revision, eight bytes each. The client sends no reply.
    pub fn write(&self, opaque: u32, out: &mut Vec<u8>) {
        let mut extras = [0; 16];
        extras[..8].copy_from_slice(&self.epoch.to_be_bytes());
        extras[8..].copy_from_slice(&self.rev.to_be_bytes());
        let datatype = match self.map {
            None => Datatype::RAW,
            Some(_) if self.snappy => Datatype::JSON.union(Datatype::SNAPPY),
            Some(_) => Datatype::JSON,
        };
        ServerRequest {
            opcode: SERVER_OPCODE_CLUSTERMAP_CHANGE_NOTIFICATION,
            opaque,
            datatype,
            extras: &extras,
            key: self.bucket,
            value: self.map.unwrap_or_default(),
        }
        .write(out);
    }
}
