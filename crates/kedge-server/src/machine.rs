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

/// Memory that this process has of the system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// In memory now.
    pub(crate) resident: u64,
    /// The most that was.
    pub(crate) peak: u64,
    /// Addresses that it has, whether there is memory behind them or not.
    pub(crate) mapped: u64,
}

/// The process's memory, where `/proc` tells.
pub(crate) fn process_memory() -> Option<ProcessMemory> {
    parse_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

fn parse_status(text: &str) -> Option<ProcessMemory> {
    Some(ProcessMemory {
        resident: bytes(text, "VmRSS")?,
        peak: bytes(text, "VmHWM")?,
        mapped: bytes(text, "VmSize")?,
    })
}

fn parse_meminfo(text: &str) -> Option<Memory> {
    Some(Memory {
        total: bytes(text, "MemTotal")?,
        available: bytes(text, "MemAvailable")?,
    })
}

/// A line of proc(5), `/proc/meminfo` or `/proc/PID/status`: `MemTotal:  123 kB`, where kB are KiB.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
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
    fn status_of_the_process() {
        let text = "VmPeak:\t  900 kB\nVmSize:\t  800 kB\nVmHWM:\t  30 kB\nVmRSS:\t  20 kB\n";
        let memory = ProcessMemory {
            resident: 20 << 10,
            peak: 30 << 10,
            mapped: 800 << 10,
        };
        assert_eq!(parse_status(text), Some(memory));
        assert_eq!(parse_status("VmRSS:\t  20 kB\n"), None);
    }

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
