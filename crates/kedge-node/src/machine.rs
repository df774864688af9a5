//! Memory and disk of the machine, and their use by the process.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    /// The total.
    pub total: u64,
    /// The available part, caches included.
    pub available: u64,
}

/// The space of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// The total.
    pub total: u64,
    /// The free part for this process; a share may be reserved for root.
    pub free: u64,
}

/// Returns the machine's memory, if `/proc` has it.
pub fn memory() -> Option<MachineMemory> {
    parse_meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// The memory of this process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    /// The resident memory.
    pub resident: u64,
    /// The peak of the resident memory.
    pub peak: u64,
    /// The mapped address space.
    pub mapped: u64,
}

/// Returns the process's memory, if `/proc` has it.
pub fn process_memory() -> Option<ProcessMemory> {
    parse_status(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Returns the processor time of all threads of the process since its start.
pub fn process_cpu() -> Option<Duration> {
    clock_gettime(ClockId::ProcessCPUTime).try_into().ok()
}

/// Returns the number of open file descriptors of the process and its limit, if `/proc` has them.
pub fn process_descriptors() -> Option<(u64, Option<u64>)> {
    // The directory is itself open while it is read.
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some((open.saturating_sub(1), getrlimit(Resource::Nofile).current))
}

/// Returns the start time of the process, in seconds since 1970, if `/proc` has it.
pub fn process_start_s() -> Option<f64> {
    let process = std::fs::read_to_string("/proc/self/stat").ok()?;
    let machine = std::fs::read_to_string("/proc/stat").ok()?;
    parse_start(&process, &machine, rustix::param::clock_ticks_per_second())
}

/// Computes the start time of a process by proc(5): field 22 of `/proc/PID/stat`, in ticks since the machine's start,
/// which is `btime` of `/proc/stat`. Field 2, the name, may contain blanks and parentheses.
fn parse_start(process: &str, machine: &str, ticks_per_s: u64) -> Option<f64> {
    let (_, after_name) = process.rsplit_once(')')?;
    let ticks: u64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    let booted = machine
        .lines()
        .find_map(|line| line.strip_prefix("btime "))?;
    let booted: u64 = booted.trim().parse().ok()?;
    Some(booted as f64 + ticks as f64 / ticks_per_s as f64)
}

/// Returns the processor time of this process in seconds, user and system, if `/proc` has it.
pub fn cpu_seconds() -> Option<(f64, f64)> {
    let process = std::fs::read_to_string("/proc/self/stat").ok()?;
    parse_cpu(&process, rustix::param::clock_ticks_per_second())
}

/// Parses fields 14 and 15 of `/proc/PID/stat`, in ticks; see [`parse_start`].
fn parse_cpu(process: &str, ticks_per_s: u64) -> Option<(f64, f64)> {
    let (_, after_name) = process.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / ticks_per_s as f64);
    Some((seconds()?, seconds()?))
}

fn parse_status(text: &str) -> Option<ProcessMemory> {
    Some(ProcessMemory {
        resident: bytes(text, "VmRSS")?,
        peak: bytes(text, "VmHWM")?,
        mapped: bytes(text, "VmSize")?,
    })
}

fn parse_meminfo(text: &str) -> Option<MachineMemory> {
    Some(MachineMemory {
        total: bytes(text, "MemTotal")?,
        available: bytes(text, "MemAvailable")?,
    })
}

/// Parses a line of proc(5), `/proc/meminfo` or `/proc/PID/status`: `MemTotal:  123 kB`, where kB are KiB.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1 << 10)
}

/// Returns the space of the file system of `path`.
pub fn room(path: &Path) -> Option<DiskRoom> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(DiskRoom {
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
    })
}

/// Returns the number of vBucket files that all buckets together may keep open: a quarter of the limit.
#[must_use]
pub fn files_for_buckets() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_status_is_parsed() {
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
    fn process_start_is_parsed_when_the_name_has_blanks() {
        let process = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 250 20 21";
        let machine = "cpu  1 2 3\nbtime 1700000000\nprocesses 9\n";
        assert_eq!(
            parse_start(process, machine, 100),
            Some(1_700_000_002.5),
            "{process}"
        );
        assert_eq!(parse_start(process, "cpu 1", 100), None);
        assert_eq!(parse_start("7 (a) S 1", machine, 100), None);
    }

    #[test]
    fn statistics_of_this_process_are_read() {
        let files: Vec<_> = (0..20).map(|_| std::fs::File::open("/").unwrap()).collect();
        let (open, limit) = process_descriptors().unwrap();
        assert!(open >= files.len() as u64, "{open}");
        assert!(limit.is_none_or(|limit| limit >= open), "{open} {limit:?}");
        assert!(process_cpu().unwrap() > Duration::ZERO);
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        let start = process_start_s().unwrap();
        assert!(
            (1.577e9..=now.as_secs_f64() + 1.0).contains(&start),
            "{start}"
        );
    }

    #[test]
    fn meminfo_is_parsed() {
        let text = "MemTotal:        2048 kB\nMemFree:          100 kB\nMemAvailable:    1024 kB\n";
        let memory = MachineMemory {
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
    fn processor_time_is_parsed_when_the_name_has_blanks() {
        let line = "1234 (a ) b) S 1 1 1 0 -1 4194560 900 0 0 0 250 75 0 0 20 0 12 0 100\n";
        assert_eq!(parse_cpu(line, 100), Some((2.5, 0.75)));
        assert_eq!(parse_cpu("1234 (kedge) S 1", 100), None);
    }

    #[test]
    fn free_disk_space_of_a_directory_is_read() {
        let room = room(&std::env::temp_dir()).unwrap();
        assert!(room.total >= room.free);
        assert_eq!(super::room(Path::new("/no/such/place")), None);
    }
}
