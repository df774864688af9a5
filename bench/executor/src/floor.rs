//! The lower bound of every hand-over that waits: two threads that take turns, nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::baton::{Baton, Spin};
use crate::measure::{Outcome, Window, measure};
use crate::place::{allowed_cores, pin_to};

/// The cores of the two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorePlacement {
    /// Chosen by the kernel.
    Free,
    /// Both on one core.
    SameCore,
    /// On different cores.
    AcrossCores,
}

/// The way in which they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitMethod {
    /// A futex, without spinning.
    Futex,
    /// A mutex and a condition variable of the standard library.
    Condvar,
    /// A futex after spinning up to 10 us.
    Spin10,
    /// Spinning only.
    Spin,
}

/// A measured lower bound.
#[derive(Debug, Clone, Copy)]
pub struct FloorCase {
    /// The name in tables.
    pub name: &'static str,
    /// The way in which they wait.
    pub means: WaitMethod,
    /// The cores on which they run.
    pub place: CorePlacement,
}

const fn case(name: &'static str, means: WaitMethod, place: CorePlacement) -> FloorCase {
    FloorCase { name, means, place }
}

/// All cases. The first that the machine can run is the reference of ratios.
pub const CASES: [FloorCase; 8] = [
    case(
        "futex_across_cores",
        WaitMethod::Futex,
        CorePlacement::AcrossCores,
    ),
    case(
        "futex_same_core",
        WaitMethod::Futex,
        CorePlacement::SameCore,
    ),
    case("futex_free", WaitMethod::Futex, CorePlacement::Free),
    case(
        "condvar_across_cores",
        WaitMethod::Condvar,
        CorePlacement::AcrossCores,
    ),
    case(
        "condvar_same_core",
        WaitMethod::Condvar,
        CorePlacement::SameCore,
    ),
    case("condvar_free", WaitMethod::Condvar, CorePlacement::Free),
    case(
        "spin_10us_across_cores",
        WaitMethod::Spin10,
        CorePlacement::AcrossCores,
    ),
    case(
        "spin_across_cores",
        WaitMethod::Spin,
        CorePlacement::AcrossCores,
    ),
];

/// One direction of the hand-over.
trait Bell: Sync {
    fn ring(&self);
    /// Waits for the ring, and prepares for the next.
    fn hear(&self);
}

impl Bell for Baton {
    fn ring(&self) {
        self.post();
    }

    fn hear(&self) {
        self.wait();
        self.reset();
    }
}

#[derive(Default)]
struct CondvarBell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell for CondvarBell {
    fn ring(&self) {
        *self.rung.lock().expect("nobody panics with it") = true;
        self.changed.notify_one();
    }

    fn hear(&self) {
        let rung = self.rung.lock().expect("nobody panics with it");
        let mut rung = self
            .changed
            .wait_while(rung, |rung| !*rung)
            .expect("nobody panics with it");
        *rung = false;
    }
}

/// The distance between the processors of a cell. Two processors of a virtual machine may be threads of one core now
/// and unrelated cores a minute later, which makes communication between them five times as slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// The round trip of a cache line takes less than [`NEAR_NS`].
    Near,
    /// It takes longer.
    Far,
}

/// The limit between the round trips of threads of one core or neighbours in one cache (some 70 ns, at most 100), and
/// of others (some 300).
pub const NEAR_NS: f64 = 160.0;

const LOOK: Window = Window {
    warm_up: Duration::from_millis(1),
    measured: Duration::from_millis(3),
};

impl Distance {
    /// Both distances.
    pub const ALL: [Self; 2] = [Self::Near, Self::Far];

    /// Measures the current distance. A machine with one core is near itself.
    #[must_use]
    pub fn now() -> Self {
        let spin = case("", WaitMethod::Spin, CorePlacement::AcrossCores);
        match run(spin, LOOK) {
            Some(turns) if 1e9 / turns.items_per_s >= NEAR_NS => Self::Far,
            _ => Self::Near,
        }
    }

    /// Returns the name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Runs one cell; an item is a round trip. `None` if the machine has only one core and two are needed.
#[must_use]
pub fn run(case: FloorCase, window: Window) -> Option<Outcome> {
    let cores = allowed_cores();
    let places = match case.place {
        CorePlacement::Free => None,
        CorePlacement::SameCore => Some((cores[0], cores[0])),
        CorePlacement::AcrossCores => Some((cores[0], *cores.get(1)?)),
    };
    let baton = |spin| Baton::new(spin);
    Some(match case.means {
        WaitMethod::Futex => ping_pong(&baton(Spin::None), &baton(Spin::None), places, window),
        WaitMethod::Condvar => ping_pong(
            &CondvarBell::default(),
            &CondvarBell::default(),
            places,
            window,
        ),
        WaitMethod::Spin10 => {
            let spin = Spin::For(Duration::from_micros(10));
            ping_pong(&baton(spin), &baton(spin), places, window)
        }
        WaitMethod::Spin => ping_pong(&baton(Spin::Forever), &baton(Spin::Forever), places, window),
    })
}

fn ping_pong<B: Bell>(
    there: &B,
    back: &B,
    places: Option<(usize, usize)>,
    window: Window,
) -> Outcome {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            places.inspect(|(_, core)| pin_to(*core));
            loop {
                there.hear();
                if over.load(Ordering::Relaxed) {
                    return;
                }
                back.ring();
            }
        });
        measure(
            1,
            window,
            || Duration::ZERO,
            |_, progress| {
                places.inspect(|(core, _)| pin_to(*core));
                while progress.go_on() {
                    there.ring();
                    back.hear();
                    progress.add(1);
                }
                over.store(true, Ordering::Relaxed);
                there.ring();
            },
        )
    })
}
