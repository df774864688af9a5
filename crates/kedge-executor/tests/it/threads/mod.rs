//! Tests with threads.

mod end;
mod held_up;
mod idle;
mod size;
mod timers;
mod waiting;
mod wakes;

use std::fs;

/// Returns the id of the calling thread in the operating system.
fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Returns the name of a thread of this process, or `None` when it has ended.
fn name_of(thread: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// Returns the nice value of a thread.
fn nice_of(thread: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    // The name is in parentheses and may contain any character. Field 3 follows it, and nice is field 19.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields
        .split_whitespace()
        .nth(19 - 3)
        .unwrap()
        .parse()
        .unwrap()
}
