//! Everybody who takes part, each in a file of its own.

mod crossbeam;
mod future_heap;
mod one_scheduler;
mod ours;
mod rayon;
mod single_mutex;
mod task;
#[cfg(test)]
mod tests;
mod threadpool;
mod tokio;

pub use self::crossbeam::Crossbeam;
pub use self::one_scheduler::OneScheduler;
pub use self::ours::Ours;
pub use self::rayon::Rayon;
pub use self::single_mutex::SingleMutex;
pub use self::threadpool::Threadpool;
pub use self::tokio::{TokioSpawn, TokioSpawnBlocking};

/// Threads of NonIO, Reader, Writer and AuxIO on the two cores the figures come from, as executor pools of this kind of
/// server have them; used to measure what they cost when idle.
const WHOLE: [usize; 4] = [2, 4, 4, 4];
