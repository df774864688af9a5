//! A thread that is expected to look at the queue soon, and does not, holds nobody up.

use kedge_executor::Pool;

use crate::support::{Gate, NORMAL, begin, finish, threaded};

/// The watch looked 16 times, a millisecond apart, and each time let one more thread begin; then it rested, with tasks
/// in the queue and idle threads beside it.
#[test]
fn quick_tasks_that_turn_long_get_all_threads_that_there_are() {
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
