//! Any files in the directory of a log: opening it is an error or gives a log that can be used and opened again, in
//! both recovery modes, and never a panic.
//!
//! The first byte chooses: with an even one the rest is cut into raw segment files; with an odd one it is a list of
//! patches (segment, offset, bits to flip) to a sound log, which reach deeper as most checksums still match. With its
//! second bit the log is encrypted.
#![no_main]

use std::sync::OnceLock;

use kedge_disk::{Disk, SimDisk, replace_file};
use kedge_log::RecoveryMode;
use libfuzzer_sys::fuzz_target;

#[path = "support/log.rs"]
mod support;

use support::{append, dir, open, open_and_use, segment};

const PATCH_BYTES: usize = 4;

/// Three segments and a little more, closed.
fn sound_log(is_encrypted: bool) -> SimDisk {
    static SOUND: [OnceLock<SimDisk>; 2] = [const { OnceLock::new() }; 2];
    let build = || {
        let disk = SimDisk::new(1);
        let mode = RecoveryMode::Strict;
        let (mut log, _) = open(&disk, mode, is_encrypted).expect("an empty disk");
        for n in 0..18 {
            append(&mut log, &vec![n as u8; 200 * n]);
        }
        log.close().expect("close");
        disk
    };
    SOUND[usize::from(is_encrypted)].get_or_init(build).fork()
}

fn raw_files(bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir_all(dir()).expect("create");
    for (index, piece) in bytes.chunks(8192).take(4).enumerate() {
        replace_file(&disk, &segment(index + 1), piece).expect("write");
    }
    disk
}

fn patched(patches: &[u8], is_encrypted: bool) -> SimDisk {
    let disk = sound_log(is_encrypted);
    for patch in patches.chunks_exact(PATCH_BYTES) {
        let path = segment(1 + usize::from(patch[0] % 3));
        let offset = u64::from(u16::from_le_bytes([patch[1], patch[2]]));
        if offset < disk.len(&path).expect("a segment") {
            disk.flip(&path, offset, patch[3]);
        }
    }
    disk
}

fuzz_target!(|input: &[u8]| {
    let Some((&kind, rest)) = input.split_first() else {
        return;
    };
    let is_encrypted = kind & 2 != 0;
    let disk = if kind % 2 == 0 {
        raw_files(rest)
    } else {
        patched(rest, is_encrypted)
    };
    open_and_use(&disk, is_encrypted);
});
