//! Logs whose every checksum, tag and proof is right: what segments, batches and records say comes from the input, which
//! otherwise would hardly get past them.
//!
//! The input is a list of segments with their batches. All of it is true unless the input says otherwise; some bytes are
//! damaged at the end.
#![no_main]

use kedge_disk::{Disk, SimDisk, replace_file};
use libfuzzer_sys::fuzz_target;

#[path = "support/input.rs"]
mod input;
#[path = "support/log_seal.rs"]
mod log_seal;
#[path = "support/log.rs"]
mod support;

use input::Input;
use support::{OWNER, dir, open_and_use, segment};

const PAGE_BYTES: usize = 4096;
const BATCH_HEADER_BYTES: usize = 56;
const SEGMENTS_MAX: u8 = 4;
const BATCHES_MAX: u8 = 6;
const RECORDS_MAX: u8 = 4;
const PAYLOAD_MAX: u8 = 60;

/// The position of the log.
struct Position {
    lsn: u64,
    epoch: u64,
}

/// The number; or, if the input says so, one near it, or near either end of all numbers.
fn or_a_lie(truth: u64, input: &mut Input<'_>) -> u64 {
    if !input.lies() {
        return truth;
    }
    let by = u64::from(input.byte());
    match input.byte() % 5 {
        0 => truth.wrapping_add(8 * by),
        1 => truth.wrapping_sub(8 * by),
        2 => by,
        3 => (u64::MAX / 2).wrapping_sub(8 * by),
        _ => u64::MAX - by,
    }
}

fn put(fields: &mut [u8], at: usize, number: u64) {
    fields[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

fn record(input: &mut Input<'_>) -> Vec<u8> {
    let payload = input.short(PAYLOAD_MAX);
    let len = or_a_lie(payload.len() as u64, input) as u32;
    let mut covered = len.to_le_bytes().to_vec();
    covered.extend([input.byte(), 0, input.byte(), 0]);
    covered.extend(payload);
    covered.resize((4 + covered.len()).next_multiple_of(8) - 4, 0);
    [&crc32c::crc32c(&covered).to_le_bytes()[..], &covered].concat()
}

fn batch(at: &Position, salt: u64, is_encrypted: bool, input: &mut Input<'_>) -> Vec<u8> {
    let count = input.byte() % RECORDS_MAX;
    let records: Vec<Vec<u8>> = (0..count).map(|_| record(input)).collect();
    let digest = records
        .iter()
        .fold(0, |digest, it| crc32c::crc32c_append(digest, &it[..4]));
    let mut body = records.concat();
    let header_bytes = if is_encrypted {
        log_seal::BATCH_HEADER_BYTES
    } else {
        BATCH_HEADER_BYTES
    };
    let bytes = (header_bytes + body.len()) as u64;
    let mut fields = [0; log_seal::BATCH_HEADER_BYTES];
    fields[..4].copy_from_slice(b"KgBt");
    put(&mut fields, 8, or_a_lie(at.lsn, input));
    put(&mut fields, 16, or_a_lie(at.lsn, input));
    put(&mut fields, 24, or_a_lie(at.epoch, input));
    put(&mut fields, 32, or_a_lie(bytes, input));
    let count = or_a_lie(count.into(), input) as u32;
    fields[40..44].copy_from_slice(&count.to_le_bytes());
    let digest = or_a_lie(u64::from(digest), input) as u32;
    if is_encrypted {
        log_seal::seal(&mut fields, at.lsn, &mut body);
    } else {
        fields[44..48].copy_from_slice(&digest.to_le_bytes());
    }
    let fields = &mut fields[..header_bytes];
    let crc = crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &fields[..4]);
    let crc = crc32c::crc32c_append(crc, &fields[8..]);
    fields[4..8].copy_from_slice(&crc.to_le_bytes());
    [&*fields, &body].concat()
}

/// A segment that begins at the position, which is behind it then.
fn segment_file(number: usize, at: &mut Position, input: &mut Input<'_>) -> Vec<u8> {
    let base = or_a_lie(at.lsn, input);
    at.epoch = or_a_lie(at.epoch, input);
    let salt = u64::from(input.byte());
    let is_encrypted = input.byte() % 2 == 1;
    let mut fields = [0; log_seal::HEADER_BYTES];
    fields[..8].copy_from_slice(b"KedgeLog");
    fields[8..12].copy_from_slice(&1_u32.to_le_bytes());
    put(&mut fields, 16, or_a_lie(number as u64, input));
    put(&mut fields, 24, base);
    fields[32..48].copy_from_slice(&OWNER);
    put(&mut fields, 48, at.epoch);
    put(&mut fields, 56, salt);
    put(&mut fields, 64, or_a_lie(0, input));
    at.lsn = base;
    let mut batches = Vec::new();
    for _ in 0..input.byte() % BATCHES_MAX {
        at.epoch = at.epoch.wrapping_add(u64::from(input.byte() % 2));
        let batch = batch(at, salt, is_encrypted, input);
        at.lsn = at.lsn.wrapping_add(batch.len() as u64);
        batches.extend(batch);
    }
    let spare_pages = usize::from(input.byte() % 3);
    let file_bytes = (PAGE_BYTES + batches.len()).next_multiple_of(PAGE_BYTES)
        + spare_pages.max(usize::from(batches.is_empty())) * PAGE_BYTES;
    put(&mut fields, 72, or_a_lie(file_bytes as u64, input));
    if is_encrypted {
        log_seal::complete_header(&mut fields);
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&fields[..12]), &fields[16..96]);
    fields[12..16].copy_from_slice(&crc.to_le_bytes());
    let mut file = vec![0; file_bytes];
    for copy in [0, 2048] {
        file[copy..copy + fields.len()].copy_from_slice(&fields);
    }
    file[PAGE_BYTES..PAGE_BYTES + batches.len()].copy_from_slice(&batches);
    file
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let disk = SimDisk::new(1);
    disk.create_dir_all(dir()).expect("create");
    let first = usize::from(input.byte() % 3) + 1;
    let count = usize::from(input.byte() % SEGMENTS_MAX) + 1;
    let mut at = Position { lsn: 0, epoch: 1 };
    for number in first..first + count {
        let mut file = segment_file(number, &mut at, &mut input);
        if input.lies() {
            let offset = usize::from(input.byte()) << 8 | usize::from(input.byte());
            let damaged = offset % file.len();
            file[damaged] ^= input.byte();
        }
        replace_file(&disk, &segment(number), &file).expect("write");
    }
    open_and_use(&disk, input.byte() % 2 == 1);
});
