//! All contenders, each in a file of its own.

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

/// The threads of NonIO, Reader, Writer and AuxIO on the two cores of the published figures, as executor pools of this
/// kind of server have them; used to measure their idle cost.
const WHOLE: [usize; 4] = [2, 4, 4, 4];
