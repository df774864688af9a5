//! The floor under every hand-over that waits: two threads that give each other a turn, and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::baton::{Baton, Spin};
use crate::measure::{Outcome, Window, measure};
use crate::place::{allowed_cores, pin_to};

/// Where the two threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Wherever the kernel puts them.
    Free,
    /// Both on one core.
    SameCore,
    /// On a core each.
    AcrossCores,
}

/// How they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// A futex, asleep at once.
    Futex,
    /// A mutex and a condition variable of the standard library.
    Condvar,
    /// A futex after spinning up to 10 us.
    Spin10,
    /// Spinning only.
    Spin,
}

/// A floor that is measured.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// In tables.
    pub name: &'static str,
    /// How they wait.
    pub means: Means,
    /// Where they run.
    pub place: Place,
}

const fn case(name: &'static str, means: Means, place: Place) -> Case {
    Case { name, means, place }
}

/// The first that the machine can run is the floor that ratios are taken to.
pub const CASES: [Case; 8] = [
    case("futex_across_cores", Means::Futex, Place::AcrossCores),
    case("futex_same_core", Means::Futex, Place::SameCore),
    case("futex_free", Means::Futex, Place::Free),
    case("condvar_across_cores", Means::Condvar, Place::AcrossCores),
    case("condvar_same_core", Means::Condvar, Place::SameCore),
    case("condvar_free", Means::Condvar, Place::Free),
    case("spin_10us_across_cores", Means::Spin10, Place::AcrossCores),
    case("spin_across_cores", Means::Spin, Place::AcrossCores),
];

/// One direction.
trait Bell: Sync {
    fn ring(&self);
    /// Waits for the ring, and is ready for the next.
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

/// How far the processors that a cell ran on were from each other. A virtual machine's may be two threads of one core now
/// and cores with nothing in common a minute later, and what passes between them takes five times as long then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// A cache line goes there and back in less than [`NEAR_NS`].
    Near,
    /// It takes longer.
    Far,
}

/// Between what threads of one core or neighbours in one cache take (some 70 ns, at most 100), and others (some 300).
pub const NEAR_NS: f64 = 160.0;

const LOOK: Window = Window {
    warm_up: Duration::from_millis(1),
    measured: Duration::from_millis(3),
};

impl Distance {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Near, Self::Far];

    /// Of this moment. A machine with one core is near itself.
    #[must_use]
    pub fn now() -> Self {
        let spin = case("", Means::Spin, Place::AcrossCores);
        match run(spin, LOOK) {
            Some(turns) if 1e9 / turns.items_per_s >= NEAR_NS => Self::Far,
            _ => Self::Near,
        }
    }

    /// In tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Runs one cell; an item is a turn there and back. `None` where the machine has only one core and two are needed.
#[must_use]
pub fn run(case: Case, window: Window) -> Option<Outcome> {
    let cores = allowed_cores();
    let places = match case.place {
        Place::Free => None,
        Place::SameCore => Some((cores[0], cores[0])),
        Place::AcrossCores => Some((cores[0], *cores.get(1)?)),
    };
    let baton = |spin| Baton::new(spin);
    Some(match case.means {
        Means::Futex => ping_pong(&baton(Spin::None), &baton(Spin::None), places, window),
        Means::Condvar => ping_pong(
            &CondvarBell::default(),
            &CondvarBell::default(),
            places,
            window,
        ),
        Means::Spin10 => {
            let spin = Spin::For(Duration::from_micros(10));
            ping_pong(&baton(spin), &baton(spin), places, window)
        }
        Means::Spin => ping_pong(&baton(Spin::Forever), &baton(Spin::Forever), places, window),
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
