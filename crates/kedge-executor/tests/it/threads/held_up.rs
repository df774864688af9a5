//! A delayed thread delays no other task.

use kedge_executor::Pool;

use crate::support::{Gate, NORMAL, begin, finish, threaded};

/// The watchdog used to check 16 times, a millisecond apart, and woke one more thread each time. Then it became
/// inactive, with tasks queued and threads idle.
#[test]
fn short_tasks_that_become_long_get_all_threads() {
    const WAITING: usize = 26;
    let (executor, owner) = threaded(WAITING + 1);
    for _ in 0..200 {
        executor.submit_as(&NORMAL, owner, || ()).wait().unwrap();
    }
    let work = begin(move || {
        let gate = Gate::default();
        let waiting: Vec<_> = (0..WAITING)
            .map(|_| {
                let gate = gate.clone();
                executor.submit_as(&NORMAL, owner, move || gate.pass())
            })
            .collect();
        let last = executor.submit_as(&NORMAL, owner, move || gate.open());
        for handle in waiting.into_iter().chain([last]) {
            handle.wait().unwrap();
        }
        executor.pools()[Pool::NonIo as usize].queued
    });
    assert_eq!(finish(&work), 0);
}
