//! What the machine has: memory and disk.

use std::path::Path;

/// Memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) total: u64,
    /// What programs could still have, caches included.
    pub(crate) available: u64,
}

/// Room of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) total: u64,
    /// For this process; a share may be kept for root.
    pub(crate) free: u64,
}

/// The machine's memory, where `/proc` tells.
pub(crate) fn memory() -> Option<Memory> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Lines of proc(5), `/proc/meminfo`: `MemTotal:  123 kB`, where kB are KiB.
fn parse_meminfo(text: &str) -> Option<Memory> {
    let bytes = |name: &str| -> Option<u64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1 << 10)
    };
    Some(Memory {
        total: bytes("MemTotal")?,
        available: bytes("MemAvailable")?,
    })
}

/// The room of the file system that holds `path`.
pub(crate) fn room(path: &Path) -> Option<Room> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(Room {
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo() {
        let text = "MemTotal:        2048 kB\nMemFree:          100 kB\nMemAvailable:    1024 kB\n";
        let memory = Memory {
            total: 2 << 20,
            available: 1 << 20,
        };
        assert_eq!(parse_meminfo(text), Some(memory));
        for text in [
            "",
            "MemTotal: 5 kB",
            "MemTotal: x kB\nMemAvailable: 1 kB",
            "MemTotal: 5\nMemAvailable: 5",
        ] {
            assert_eq!(parse_meminfo(text), None, "{text:?}");
        }
    }

    #[test]
    fn room_of_a_directory() {
        let room = room(&std::env::temp_dir()).unwrap();
        assert!(room.total >= room.free);
        assert_eq!(super::room(Path::new("/no/such/place")), None);
    }
}
