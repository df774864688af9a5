//! The waits of the front-end threads for a processor, as the system counts them.
//!
//! Source: the kernel's `Documentation/scheduler/sched-stats.rst`, `/proc/<pid>/schedstat`: time spent on the cpu, time spent
//! waiting on a runqueue (both in nanoseconds), number of timeslices run on this cpu.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use kedge_bucket::ProcessorWaits;

/// The file of the calling thread. The handle keeps to that thread.
const OWN_FILE: &str = "/proc/thread-self/schedstat";
/// Longest content of such a file: three numbers of 64 bits.
const FILE_BYTES_MAX: usize = 64;

/// The file of one thread. `None` if the system has no such file.
#[derive(Debug, Default)]
pub(crate) struct ThreadWaits(OnceLock<Option<File>>);

impl ThreadWaits {
    /// Opens the file of the calling thread.
    pub(crate) fn watch_this_thread(&self) {
        self.0.get_or_init(|| File::open(OWN_FILE).ok());
    }

    /// Returns the waits of the thread since its start. `None` without the file.
    pub(crate) fn read(&self) -> Option<ProcessorWaits> {
        let file = self.0.get()?.as_ref()?;
        let mut content = [0; FILE_BYTES_MAX];
        let count = file.read_at(&mut content, 0).ok()?;
        parse(&content[..count])
    }
}

/// Returns the sum of the waits of all threads. `None` if that of one is missing.
pub(crate) fn sum<'t>(threads: impl Iterator<Item = &'t ThreadWaits>) -> Option<ProcessorWaits> {
    let mut sum = ProcessorWaits::default();
    for thread in threads {
        let waits = thread.read()?;
        sum.waited_ns = sum.waited_ns.saturating_add(waits.waited_ns);
        sum.runs = sum.runs.saturating_add(waits.runs);
    }
    Some(sum)
}

fn parse(content: &[u8]) -> Option<ProcessorWaits> {
    let mut fields = std::str::from_utf8(content).ok()?.split_ascii_whitespace();
    let _on_processor_ns = fields.next()?;
    Some(ProcessorWaits {
        waited_ns: fields.next()?.parse().ok()?,
        runs: fields.next()?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_and_third_field_are_the_wait_and_the_runs() {
        let waits = ProcessorWaits {
            waited_ns: 450,
            runs: 12,
        };
        assert_eq!(parse(b"96100300 450 12\n"), Some(waits));
        for other in [&b""[..], b"1 2", b"1 x 3", b"1 2 \xff"] {
            assert_eq!(parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn thread_that_is_not_watched_gives_no_signal() {
        let watched = ThreadWaits::default();
        watched.watch_this_thread();
        // A system without the file has none to give.
        let first = watched.read();
        assert_eq!(first.is_some(), File::open(OWN_FILE).is_ok());
        assert_eq!(sum([&watched].into_iter()).is_some(), first.is_some());
        let other = ThreadWaits::default();
        assert_eq!(sum([&watched, &other].into_iter()), None);
    }

    #[test]
    fn handle_keeps_to_its_thread() {
        let waits = std::sync::Arc::new(ThreadWaits::default());
        let of_thread = waits.clone();
        std::thread::spawn(move || of_thread.watch_this_thread())
            .join()
            .expect("it ends");
        // The thread has ended, and this one is not taken for it.
        assert_eq!(waits.read(), None);
    }
}
