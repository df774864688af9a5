//! The pages of the binary that only the start needed.
//!
//! The kernel maps a page of the binary when it is used, and its neighbours with it. They stay mapped, and count as
//! resident memory of the process, although most code of a start never runs again.

/// Unmaps the pages of the binary's code and constants. What is used later is mapped again, from the page cache of the
/// system or from the file.
pub(super) fn unmap() {
    #[cfg(target_os = "linux")]
    linux::unmap();
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::c_void;
    use std::fs;

    use rustix::mm::{Advice, madvise};

    pub(super) fn unmap() {
        let (Ok(maps), Ok(binary)) = (
            fs::read_to_string("/proc/self/maps"),
            fs::read_link("/proc/self/exe"),
        ) else {
            return;
        };
        for (start, end) in never_written(&maps, &binary.to_string_lossy()) {
            let address: *mut c_void = std::ptr::with_exposed_provenance_mut(start);
            #[expect(unsafe_code, reason = "pages are unmapped that this code is in")]
            // SAFETY: the range is a mapping of the binary that nothing writes to: its code, or the constants before it.
            // So each page has the content of the file, and the kernel maps it again when it is used.
            let unmapped = unsafe { madvise(address, end - start, Advice::LinuxDontNeed) };
            if let Err(error) = unmapped {
                tracing::debug!(%error, "pages of the binary stay mapped");
            }
        }
    }

    /// Returns the ranges of addresses of the binary's mappings that nothing writes to. The one of constants that begins
    /// the file is one. Others that are readable had relocations, which are not in the file.
    fn never_written(maps: &str, binary: &str) -> Vec<(usize, usize)> {
        let of_line = |line: &str| {
            let (range, rest) = line.split_once(' ')?;
            let mut fields = rest.split_ascii_whitespace();
            let (access, offset) = (fields.next()?, fields.next()?);
            let offset = u64::from_str_radix(offset, 16).ok()?;
            let is_of_binary = rest.find('/').is_some_and(|at| rest[at..] == *binary);
            let is_never_written = access == "r-xp" || (access == "r--p" && offset == 0);
            let (start, end) = range.split_once('-')?;
            let address = |hex| usize::from_str_radix(hex, 16).ok();
            (is_of_binary && is_never_written).then_some((address(start)?, address(end)?))
        };
        maps.lines().filter_map(of_line).collect()
    }

    #[cfg(test)]
    mod tests {
        use super::never_written;

        #[test]
        fn code_and_the_constants_before_it_are_never_written() {
            let maps = "\
55db5e953000-55db5eded000 r--p 00000000 fe:00 18 /usr/bin/kedge
55db5eded000-55db5fc2b000 r-xp 00499000 fe:00 18 /usr/bin/kedge
55db5fc2b000-55db5fca0000 r--p 012d6000 fe:00 18 /usr/bin/kedge
55db5fca0000-55db5fcb0000 rw-p 0134b000 fe:00 18 /usr/bin/kedge
7fc4b9fdc000-7fc4ba002000 r--p 00000000 fe:00 19 /usr/lib/libc.so.6
7fc4ba002000-7fc4ba158000 r-xp 00026000 fe:00 19 /usr/lib/libc.so.6
7fc4ba160000-7fc4ba170000 rw-p 00000000 00:00 0
";
            let found = never_written(maps, "/usr/bin/kedge");
            let constants = (0x55db_5e95_3000, 0x55db_5ede_d000);
            let code = (0x55db_5ede_d000, 0x55db_5fc2_b000);
            assert_eq!(found, [constants, code]);
            assert_eq!(never_written(maps, "/usr/bin/other"), []);
        }
    }
}
