//! DCP_CONTROL: the properties that a consumer may set.
//!
//! Source of the keys: Couchbase `docs/dcp/documentation/commands/control.md`.

use super::format::OsoSupport;
use super::{Producer, ProducerAction, RequestRejection};
use crate::request::{COPY_RATE_KEY, MAP_EPOCH_KEY};
use kedge_protocol::binary::commands::dcp::{DcpControl, MarkerVersion};
use kedge_types::Status;
use kedge_types::limits::DCP_NOOP_INTERVAL_SECS_MAX;
use std::cmp::Ordering;

const fn invalid(reason: &'static str) -> RequestRejection {
    RequestRejection {
        status: Status::Invalid,
        reason,
    }
}

fn flag(value: &[u8]) -> Result<bool, RequestRejection> {
    match value {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(invalid("the value is neither true nor false")),
    }
}

fn number(value: &[u8]) -> Result<u32, RequestRejection> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|text| text.parse().ok())
        .ok_or(invalid("the value is not a number of 32 bits"))
}

/// Accepts a flag that can only be switched on.
fn switch(value: &[u8]) -> Result<(), RequestRejection> {
    if flag(value)? {
        Ok(())
    } else {
        Err(invalid("this cannot be switched off"))
    }
}

/// Rejects a missing feature, unless the client asks for its absence.
fn absent(value: &[u8], reason: &'static str) -> Result<(), RequestRejection> {
    if flag(value)? {
        Err(invalid(reason))
    } else {
        Ok(())
    }
}

/// Parses the interval between two NOOPs.
fn interval_secs(value: &[u8]) -> Result<u32, RequestRejection> {
    match number(value)? {
        0 => Err(invalid("the interval is 0")),
        secs if secs > DCP_NOOP_INTERVAL_SECS_MAX => {
            Err(invalid("the interval is longer than 10,000 seconds"))
        }
        secs => Ok(secs),
    }
}

fn unordered(value: &[u8]) -> Result<OsoSupport, RequestRejection> {
    if value == b"true_with_seqno_advanced" {
        Ok(OsoSupport::WithSeqnoAdvanced)
    } else if flag(value)? {
        Ok(OsoSupport::Yes)
    } else {
        Ok(OsoSupport::No)
    }
}

fn marker_version(value: &[u8]) -> Result<MarkerVersion, RequestRejection> {
    match value {
        b"1.0" => Ok(MarkerVersion::V1),
        b"2.0" => Ok(MarkerVersion::V2_0),
        b"2.2" => Ok(MarkerVersion::V2_2),
        _ => Err(invalid("markers have the versions 1.0, 2.0 and 2.2")),
    }
}

/// Parses a number of 64 bits.
fn large_number(value: &[u8]) -> Result<u64, RequestRejection> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|text| text.parse().ok())
        .ok_or(invalid("the value is not a number of 64 bits"))
}

impl Producer {
    pub(super) fn control(
        &mut self,
        control: &DcpControl<'_>,
    ) -> Result<ProducerAction, RequestRejection> {
        let value = control.value;
        match control.key {
            b"enable_noop" => self.liveness.noop_enabled = flag(value)?,
            b"set_noop_interval" => self.liveness.set_interval_secs(interval_secs(value)?),
            b"connection_buffer_size" => self.window.resize(number(value)?),
            b"set_priority" => {
                // All connections are served round-robin.
                if ![&b"low"[..], b"medium", b"high"].contains(&value) {
                    return Err(invalid("the priority is neither low, medium nor high"));
                }
            }
            b"force_value_compression" => self.force_compression(flag(value)?)?,
            // A slow stream may always fall back to the disk.
            b"supports_cursor_dropping" | b"supports_cursor_dropping_vulcan" => {
                flag(value)?;
            }
            b"supports_hifi_MFU" => self.format.hifi_mfu = flag(value)?,
            b"send_stream_end_on_client_close_stream" => self.ends_closed_streams = flag(value)?,
            b"enable_expiry_opcode" => {
                self.format.expiry_opcode = flag(value)?;
                // An expiration carries the time, so deletions carry it too.
                self.format.delete_times |= self.format.expiry_opcode;
            }
            b"enable_stream_id" => {
                switch(value)?;
                self.enable_stream_ids()?;
            }
            b"enable_sync_writes" => {
                switch(value)?;
                if self.has_stream_ids {
                    return Err(invalid("a connection with stream ids has no SyncWrites"));
                }
                self.format.sync_writes = true;
            }
            b"consumer_name" => self.set_consumer_name(value)?,
            b"enable_out_of_order_snapshots" => self.format.unordered = unordered(value)?,
            b"include_deleted_user_xattrs" => {
                if flag(value)? != self.format.deleted_user_xattrs {
                    return Err(invalid("DCP_OPEN said otherwise"));
                }
            }
            b"v7_dcp_status_codes" => self.has_v7_statuses = flag(value)?,
            b"max_marker_version" => self.format.marker_version = Some(marker_version(value)?),
            b"backfill_order" => {
                if value != b"round-robin" {
                    return Err(invalid("streams are sent in turn: round-robin"));
                }
            }
            b"flatbuffers_system_events" => self.format.flatbuffer_events = flag(value)?,
            key if key == COPY_RATE_KEY.as_bytes() => {
                // 0 is no limit.
                let bytes_per_sec = large_number(value)?;
                return Ok(ProducerAction::LimitCopies { bytes_per_sec });
            }
            key if key == MAP_EPOCH_KEY.as_bytes() => self.check_epoch(large_number(value)?)?,
            b"change_streams" => absent(value, "old versions of documents are not kept")?,
            b"cache_transfer" => absent(value, "the cache is not transferred")?,
            _ => return Err(invalid("no such setting")),
        }
        Ok(ProducerAction::Nothing)
    }

    /// Compares the epoch of the consumer's map with that of the map that this node follows. While they differ, no stream is
    /// opened.
    fn check_epoch(&mut self, epoch: u64) -> Result<(), RequestRejection> {
        let own = self.map_epoch.and_then(|own| u64::try_from(own).ok());
        let Some(own) = own else {
            return Err(invalid("this server is in no cluster"));
        };
        let fenced = |reason| {
            Err(RequestRejection {
                status: Status::TemporaryFailure,
                reason,
            })
        };
        self.is_fenced = epoch != own;
        match epoch.cmp(&own) {
            Ordering::Equal => Ok(()),
            Ordering::Less => fenced("the consumer follows a map of an earlier epoch"),
            Ordering::Greater => fenced("this node follows a map of an earlier epoch"),
        }
    }

    fn force_compression(&mut self, wanted: bool) -> Result<(), RequestRejection> {
        if wanted && !self.format.snappy {
            return Err(invalid("HELLO did not negotiate Snappy"));
        }
        self.format.force_compression = wanted;
        Ok(())
    }

    fn enable_stream_ids(&mut self) -> Result<(), RequestRejection> {
        if !self.format.collections {
            return Err(invalid("HELLO did not negotiate Collections"));
        }
        if self.format.sync_writes {
            return Err(invalid("a connection with SyncWrites has no stream ids"));
        }
        if !self.streams.is_empty() {
            return Err(invalid("there are streams without ids"));
        }
        self.has_stream_ids = true;
        Ok(())
    }

    pub(super) fn set_consumer_name(&mut self, name: &[u8]) -> Result<(), RequestRejection> {
        let name = std::str::from_utf8(name).ok();
        let name = name.and_then(kedge_vbucket::NodeName::new);
        self.consumer_name = Some(name.ok_or(invalid("this is no name of a node"))?);
        Ok(())
    }
}
