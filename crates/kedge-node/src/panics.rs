//! Panics of threads that the process needs.

use std::time::Instant;

/// Makes a panic of a front-end thread end the process: its connections would hang for ever, and its state may be half
/// changed.
pub fn abort_on_panic(run: impl FnOnce()) {
    struct Bomb(Instant);
    impl Drop for Bomb {
        fn drop(&mut self) {
            tracing::error!(after = ?self.0.elapsed(), "a thread panicked that clients wait for; the process ends");
            std::process::abort();
        }
    }
    let bomb = Bomb(Instant::now());
    run();
    std::mem::forget(bomb);
}
