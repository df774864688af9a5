//! With threads.

mod end;
mod held_up;
mod size;
mod timers;
mod waiting;
mod wakes;

use std::fs;

/// The calling thread, as the system counts it.
fn this_thread() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// The name of a thread of this process. None when it has ended.
fn name_of(thread: i32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/self/task/{thread}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

/// How far a thread gives way to others.
fn nice_of(thread: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    // The name is in parentheses and may contain anything; field 3 follows it, and nice is field 19.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields
        .split_whitespace()
        .nth(19 - 3)
        .unwrap()
        .parse()
        .unwrap()
}
