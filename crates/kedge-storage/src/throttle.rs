//! How fast compactions may read and write: as fast as commits do not feel it.
//!
//! A token bucket over bytes, whose rate follows the latency of commits. Commits are looked at in windows:
//!
//! * A window whose latency is above what is usual, by more than is tolerated, halves the rate.
//! * Any other raises it by an eighth; one without a commit by a half, as nobody is there to be disturbed.
//! * As long as there are commits of which nobody knows what is usual, the rate is the lowest.
//! * What is usual is learnt from commits that nothing disturbed: those of times without compactions, and those of
//!   windows at the lowest rate that follow on another such window, as a disk has to apply. To see some of them in a
//!   long compaction too, two windows in [`PROBE_EACH_WINDOWS`] are run at the lowest rate. So a load that makes commits
//!   slower for reasons of its own is not mistaken for disturbance for longer than that takes.
//! * Files whose garbage grows faster than it is removed raise the lowest rate, as in the end they would fill the disk:
//!   from [`BACKLOG_TOLERATED`] times as much as makes a file due on, by the square of how many times that is. Only
//!   probes are below it then.
//!
//! Invariants:
//! * The sum of all bytes that were let through is never above what the rates so far allow, plus one burst and what was
//!   announced last, however many compactions share the throttle.
//! * The rate never leaves its bounds, so that a compaction always comes to its end.
//!
//! There is no clock in here and no lock: who shares a throttle puts it behind a lock, and sleeps outside of it.

/// Windows last this long, as far as enough commits happen in them.
const WINDOW_NS: u64 = 100_000_000;
/// They last longer for this many commits ...
const WINDOW_COMMITS: usize = 8;
/// ... but not longer than this.
const WINDOW_NS_MAX: u64 = 4 * WINDOW_NS;
/// In how many windows two are run at the lowest rate.
const PROBE_EACH_WINDOWS: u32 = 50;
/// Latencies that are remembered of a window.
const SAMPLES: usize = 256;
/// Without bytes for this long, commits were undisturbed.
const IDLE_NS: u64 = 1_000_000_000;
/// A latency that is above the usual one by less than this is no disturbance, in microseconds.
const NOISE_US: u64 = 200;
/// A file may have so many times the garbage that makes it due before compactions are held to be behind. Files three
/// times as long as what is in them, when a third of it makes them due.
const BACKLOG_TOLERATED: u64 = 4;
/// What may go at once after a time of rest, as nanoseconds of the rate.
const BURST_NS: u64 = 20_000_000;

const SECOND_NS: u128 = 1_000_000_000;

/// The bounds of a [`Throttle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleConfig {
    /// Bytes read and written in a second at the least, however much commits are disturbed.
    pub bytes_per_sec_min: u64,
    /// Bytes read and written in a second at the most.
    pub bytes_per_sec_max: u64,
    /// How slow a commit may become, in percent of what it takes undisturbed: 150 is half as long again.
    pub tolerated_percent: u32,
}

impl Default for ThrottleConfig {
    fn default() -> Self {
        ThrottleConfig {
            bytes_per_sec_min: 4 << 20,
            bytes_per_sec_max: 1 << 30,
            tolerated_percent: 130,
        }
    }
}

/// The figures of a throttle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ThrottleStats {
    /// The rate now.
    pub bytes_per_sec: u64,
    /// The lowest rate, apart from probes, for the garbage that there is.
    pub bytes_per_sec_min: u64,
    /// What a commit takes undisturbed, in microseconds: the latency that nine of ten stay below. `None` if that is
    /// not known yet.
    pub undisturbed_us: Option<u64>,
    /// How often the rate was halved.
    pub slowed_down: u64,
    /// The sum of all pauses that were asked for, in nanoseconds.
    pub paused_ns: u64,
}

/// Paces compactions. See the head of this file.
#[derive(Debug)]
pub struct Throttle {
    config: ThrottleConfig,
    /// The rate, apart from probes.
    bytes_per_sec: u64,
    /// It does not fall below this, for the garbage that there is.
    bytes_per_sec_min: u64,
    /// Bytes that may go at once; below 0: those that went too early.
    tokens: i64,
    /// The latest of the calls so far, and when the pause that it asked for ends; `None` before the first.
    last: Option<Call>,
    window: Window,
    /// Where in a cycle of [`PROBE_EACH_WINDOWS`] the window is. The last two of them are probes.
    cycle: u32,
    /// Nine of ten undisturbed commits are below this.
    undisturbed_us: Option<u64>,
    slowed_down: u64,
    paused_ns: u64,
}

/// A call of [`Throttle::on_bytes`].
#[derive(Debug, Clone, Copy)]
struct Call {
    /// Up to here tokens were given out.
    at_ns: u64,
    pause_ends_ns: u64,
}

/// The commits of a time.
#[derive(Debug)]
struct Window {
    start_ns: u64,
    /// The last ones, in no order.
    latencies_us: Vec<u64>,
    /// How many there were.
    commits: usize,
    /// The window is at the lowest rate ...
    is_lowest: bool,
    /// ... and so was the one before it.
    is_stable: bool,
}

impl Window {
    fn add(&mut self, latency_us: u64) {
        if self.latencies_us.len() < SAMPLES {
            self.latencies_us.push(latency_us);
        } else {
            self.latencies_us[self.commits % SAMPLES] = latency_us;
        }
        self.commits += 1;
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let age_ns = now_ns.saturating_sub(self.start_ns);
        let has_enough = self.commits == 0 || self.commits >= WINDOW_COMMITS;
        age_ns >= WINDOW_NS_MAX || (age_ns >= WINDOW_NS && has_enough)
    }

    /// What nine of ten commits stay below, if there were any.
    fn latency_us(&mut self) -> Option<u64> {
        let last = self.latencies_us.len().checked_sub(1)?;
        let (_, latency_us, _) = self.latencies_us.select_nth_unstable(last * 9 / 10);
        Some(*latency_us)
    }

    fn restart(&mut self, now_ns: u64, is_lowest: bool) {
        self.start_ns = now_ns;
        self.latencies_us.clear();
        self.commits = 0;
        self.is_stable = is_lowest && self.is_lowest;
        self.is_lowest = is_lowest;
    }
}

impl Throttle {
    /// A throttle that begins at the lowest rate. A lowest rate of 0 is taken as 1, a highest one below the lowest as the
    /// same.
    #[must_use]
    pub fn new(config: ThrottleConfig) -> Self {
        let bytes_per_sec_min = config.bytes_per_sec_min.max(1);
        let config = ThrottleConfig {
            bytes_per_sec_min,
            bytes_per_sec_max: config.bytes_per_sec_max.max(bytes_per_sec_min),
            ..config
        };
        Throttle {
            config,
            bytes_per_sec: bytes_per_sec_min,
            bytes_per_sec_min,
            tokens: 0,
            last: None,
            window: Window {
                start_ns: 0,
                latencies_us: Vec::with_capacity(SAMPLES),
                commits: 0,
                is_lowest: true,
                is_stable: true,
            },
            cycle: 0,
            undisturbed_us: None,
            slowed_down: 0,
            paused_ns: 0,
        }
    }

    /// Other bounds from now on.
    pub fn reconfigure(&mut self, config: ThrottleConfig) {
        let bounds = Throttle::new(config).config;
        self.config = bounds;
        self.bytes_per_sec_min = bounds.bytes_per_sec_min;
        self.bytes_per_sec = self.bounded(self.bytes_per_sec);
    }

    /// A compaction begins of a file that has `times` as much garbage as makes it due.
    pub fn on_backlog(&mut self, times: u64) {
        let behind = u128::from((times / BACKLOG_TOLERATED).max(1));
        let wanted = u128::from(self.config.bytes_per_sec_min).saturating_mul(behind * behind);
        let most = self.config.bytes_per_sec_max;
        self.bytes_per_sec_min = u64::try_from(wanted).map_or(most, |wanted| wanted.min(most));
        self.bytes_per_sec = self.bounded(self.bytes_per_sec);
    }

    /// A commit, with compactions or without, took so long.
    pub fn on_commit(&mut self, latency_us: u64) {
        self.window.add(latency_us);
    }

    /// So many bytes are about to be read and written, `now_ns` on a clock that never goes back: how long to wait
    /// before that, in nanoseconds.
    pub fn on_bytes(&mut self, bytes: u64, now_ns: u64) -> u64 {
        self.refill(now_ns);
        self.look_at_commits(now_ns);
        self.tokens = self.tokens.saturating_sub_unsigned(bytes);
        let missing = u128::from(self.tokens.min(0).unsigned_abs());
        let pause_ns = missing * SECOND_NS / u128::from(self.rate());
        let pause_ns = u64::try_from(pause_ns).unwrap_or(u64::MAX);
        self.paused_ns = self.paused_ns.saturating_add(pause_ns);
        let pause_ends_ns = now_ns.saturating_add(pause_ns);
        // Threads may look at the clock in one order and come here in another.
        let at_ns = self.last.map_or(now_ns, |last| last.at_ns.max(now_ns));
        self.last = Some(Call {
            at_ns,
            pause_ends_ns,
        });
        pause_ns
    }

    /// What it is at.
    #[must_use]
    pub fn figures(&self) -> ThrottleStats {
        ThrottleStats {
            bytes_per_sec: self.rate(),
            bytes_per_sec_min: self.bytes_per_sec_min,
            undisturbed_us: self.undisturbed_us,
            slowed_down: self.slowed_down,
            paused_ns: self.paused_ns,
        }
    }

    fn rate(&self) -> u64 {
        if self.window.is_lowest {
            return self.config.bytes_per_sec_min;
        }
        self.bytes_per_sec
    }

    /// Gives out what the rate allowed since the last call.
    fn refill(&mut self, now_ns: u64) {
        let Some(last) = self.last else {
            return;
        };
        let rate = self.rate();
        let passed_ns = now_ns.saturating_sub(last.at_ns);
        let tokens = self.tokens.saturating_add(bytes_in(rate, passed_ns));
        // What was not used does not heap up.
        self.tokens = tokens.min(bytes_in(rate, BURST_NS));
    }

    /// Ends the window if it is over, and draws the conclusions.
    fn look_at_commits(&mut self, now_ns: u64) {
        let rested_from_ns = self.last.map(|last| last.pause_ends_ns);
        if rested_from_ns.is_none_or(|from_ns| now_ns.saturating_sub(from_ns) > IDLE_NS) {
            self.learn();
            let is_lowest = self.bytes_per_sec == self.config.bytes_per_sec_min;
            self.window.restart(now_ns, is_lowest);
            return;
        }
        if !self.window.is_over(now_ns) {
            return;
        }
        if self.window.is_stable {
            self.learn();
        }
        self.adapt();
        self.cycle = (self.cycle + 1) % PROBE_EACH_WINDOWS;
        let is_probe = self.cycle >= PROBE_EACH_WINDOWS - 2;
        let is_lowest = is_probe || self.bytes_per_sec == self.config.bytes_per_sec_min;
        self.window.restart(now_ns, is_lowest);
    }

    /// Takes the window's commits as undisturbed ones.
    fn learn(&mut self) {
        let Some(latency_us) = self.window.latency_us() else {
            return;
        };
        // One window may be an exception.
        self.undisturbed_us = Some(match self.undisturbed_us {
            Some(known) if known > latency_us => known - (known - latency_us).div_ceil(4),
            Some(known) => known + (latency_us - known).div_ceil(4),
            None => latency_us,
        });
    }

    /// Changes the rate after a window.
    fn adapt(&mut self) {
        let rate = self.bytes_per_sec;
        let changed = match (self.window.latency_us(), self.undisturbed_us) {
            (None, _) => rate.saturating_add(rate.div_ceil(2)),
            (Some(latency_us), Some(usual_us)) if self.is_disturbed(latency_us, usual_us) => {
                // The rate is not the cause of what happens while it is held back.
                if self.window.is_lowest {
                    return;
                }
                self.slowed_down += 1;
                rate / 2
            }
            // Whether these are slow cannot be told before some were seen that nothing disturbed.
            (Some(_), None) => 0,
            (Some(_), Some(_)) => rate.saturating_add(rate.div_ceil(8)),
        };
        self.bytes_per_sec = self.bounded(changed);
    }

    fn bounded(&self, bytes_per_sec: u64) -> u64 {
        bytes_per_sec.clamp(self.bytes_per_sec_min, self.config.bytes_per_sec_max)
    }

    fn is_disturbed(&self, latency_us: u64, usual_us: u64) -> bool {
        let tolerated =
            u128::from(usual_us) * u128::from(self.config.tolerated_percent.max(100)) / 100;
        u128::from(latency_us) > tolerated.max(u128::from(usual_us.saturating_add(NOISE_US)))
    }
}

/// Bytes that a rate lets through in a time.
fn bytes_in(bytes_per_sec: u64, ns: u64) -> i64 {
    let bytes = u128::from(bytes_per_sec) * u128::from(ns) / SECOND_NS;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
