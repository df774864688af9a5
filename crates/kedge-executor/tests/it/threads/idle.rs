//! Work of idle threads.

use std::sync::Mutex;

use kedge_executor::{Executor, ExecutorConfig, ThreadCount};

use super::{name_of, this_thread};
use crate::support::{eventually, occupy};

static DONE_BY: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn record() {
    let name = name_of(this_thread()).unwrap();
    DONE_BY.lock().unwrap().push(name);
}

fn done_by() -> Vec<String> {
    let mut names = DONE_BY.lock().unwrap().clone();
    names.sort_unstable();
    names
}

#[test]
fn each_thread_does_idle_work_once_and_a_busy_one_afterwards() {
    let executor = Executor::new(ExecutorConfig {
        reader: ThreadCount::Fixed(2),
        writer: ThreadCount::Fixed(1),
        auxio: ThreadCount::Fixed(1),
        nonio: ThreadCount::Fixed(1),
        ..ExecutorConfig::default()
    })
    .unwrap();
    let owner = executor.register("idle").unwrap();
    let (_, gate) = occupy(&executor, owner);
    executor.on_idle_threads(record);
    let idle = ["auxio-0", "reader-0", "reader-1", "writer-0"];
    eventually(|| done_by() == idle);
    gate.open();
    let all = ["auxio-0", "nonio-0", "reader-0", "reader-1", "writer-0"];
    eventually(|| done_by() == all);
}
