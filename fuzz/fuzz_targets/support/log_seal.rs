//! Encrypts segments of a log as `docs/reference/formats/log.md` says, with another cipher than that of the log.

use aes_gcm::aead::AeadInOut;
use aes_gcm::{Aes256Gcm, Nonce};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::support::{KEY, KEY_ID};

pub const HEADER_BYTES: usize = 416;
pub const BATCH_HEADER_BYTES: usize = 88;
/// The random numbers of the segment and of its batches.
const SALTS: [u8; 32] = [9; 32];

fn mac(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("any length")
}

fn derive(secret: &[u8; 32], label: &[u8], context: &[u8]) -> [u8; 32] {
    let mut mac = mac(secret);
    for part in [
        &[0, 0, 0, 1],
        label,
        b"\0kedge-log/",
        context,
        &[0, 0, 1, 0],
    ] {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn secret() -> [u8; 32] {
    derive(&KEY, b"SegmentKey", &SALTS)
}

/// Completes the header of an encrypted segment, except for the checksum of its first 96 bytes.
pub fn complete_header(fields: &mut [u8; HEADER_BYTES]) {
    fields[8..12].copy_from_slice(&2_u32.to_le_bytes());
    fields[96..128].copy_from_slice(&SALTS);
    fields[160] = KEY_ID.len() as u8;
    fields[161..161 + KEY_ID.len()].copy_from_slice(KEY_ID.as_bytes());
    let mut mac = mac(&derive(&secret(), b"HeaderKey", b""));
    for part in [
        &fields[..12],
        &fields[16..80],
        &fields[96..128],
        &fields[160..],
    ] {
        mac.update(part);
    }
    fields[128..160].copy_from_slice(&mac.finalize().into_bytes());
    let crc = crc32c::crc32c(&fields[96..]);
    fields[80..84].copy_from_slice(&crc.to_le_bytes());
}

/// Encrypts the records, and completes the header of their batch except for its checksum.
pub fn seal(fields: &mut [u8; BATCH_HEADER_BYTES], count: u64, records: &mut [u8]) {
    fields[48..64].copy_from_slice(&SALTS[..16]);
    fields[64..72].copy_from_slice(&count.to_le_bytes());
    let key = derive(&secret(), b"BatchKey", &SALTS[..16]);
    let cipher = Aes256Gcm::new_from_slice(&key).expect("32 bytes");
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&count.to_be_bytes());
    let tag = cipher
        .encrypt_inout_detached(&Nonce::from(nonce), &fields[8..72], records.into())
        .expect("a short batch");
    fields[72..].copy_from_slice(&tag);
}
