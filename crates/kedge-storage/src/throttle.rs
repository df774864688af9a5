//! The throttle of compactions and new copies, which limits their reads and writes so that clients do not suffer.
//!
//! A token bucket over bytes whose rate follows three latencies, the [`ThrottleSignal`]s: of commits, of reads of evicted
//! documents, and of front-end threads that wait for a processor. It evaluates them in windows:
//!
//! * A window in which one of them exceeds its baseline by more than the tolerance halves the rate.
//! * Any other window raises it by an eighth, and one without any of them by a half, because no client can be slowed down.
//! * The rate is the lowest while one of them has no baseline.
//! * A baseline is learnt from undisturbed requests: those without a compaction, and those of windows at the lowest
//!   rate that follow another such window, because a disk applies writes with a delay. To see some of them in a long
//!   compaction, too, two of [`PROBE_EACH_WINDOWS`] windows run at the lowest rate. So a load that slows clients down
//!   by itself is taken for disturbance for that long at most.
//! * A file whose garbage grows faster than compactions remove it raises the lowest rate, because in the end it would
//!   fill the disk. The increase starts at [`BACKLOG_TOLERATED`] times the garbage that makes a file due, and is the
//!   square of the ratio to that. Only probes are slower then.
//!
//! Invariants:
//! * The sum of all bytes that passed never exceeds the rates so far, plus one burst and the last request, whatever the
//!   number of compactions that share the throttle.
//! * The rate never leaves its bounds, so every compaction and every copy ends.
//!
//! The module has neither a clock nor a lock: users share a throttle behind a lock, and sleep outside of it.

mod signals;
mod window;

pub use signals::{ClientLatencies, PerSignal, ThrottleSignal};
use window::ThrottleWindow;

/// Number of windows per cycle, of which two run at the lowest rate.
const PROBE_EACH_WINDOWS: u32 = 50;
/// Time in ns without compaction traffic after which commits count as undisturbed.
const IDLE_NS: u64 = 1_000_000_000;
/// Excess over a baseline, in microseconds, that is noise.
const NOISE_US: u64 = 200;
/// Multiple of the garbage that makes a file due above which compactions count as late. With a threshold of a third,
/// such a file is three times as long as its contents.
const BACKLOG_TOLERATED: u64 = 4;
/// Burst size after a pause, as nanoseconds of the rate.
const BURST_NS: u64 = 20_000_000;

const SECOND_NS: u128 = 1_000_000_000;

/// The bounds of a [`Throttle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrottleConfig {
    /// Lowest rate in bytes per second, read and written, whatever the latencies.
    pub bytes_per_sec_min: u64,
    /// Highest rate in bytes per second, read and written.
    pub bytes_per_sec_max: u64,
    /// Tolerated latency in percent of the baseline: 150 allows half as much again.
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
    /// The current rate.
    pub bytes_per_sec: u64,
    /// The lowest rate, apart from probes, for the current backlog of garbage.
    pub bytes_per_sec_min: u64,
    /// The baseline of each signal in microseconds: its latency in undisturbed windows. `None` if it is unknown.
    pub undisturbed_us: PerSignal<Option<u64>>,
    /// Number of times that the rate was halved because of each signal.
    pub slowed_down: PerSignal<u64>,
    /// The signal that halved the rate last.
    pub last_slowdown: Option<ThrottleSignal>,
    /// Sum of all requested pauses, in nanoseconds.
    pub paused_ns: u64,
}

/// The throttle of compactions, see the documentation of the module.
#[derive(Debug)]
pub struct Throttle {
    config: ThrottleConfig,
    /// The rate, apart from probes.
    bytes_per_sec: u64,
    /// Lower bound of the rate for the current backlog of garbage.
    bytes_per_sec_min: u64,
    /// Number of bytes that may pass immediately; negative after bytes that passed early.
    tokens: i64,
    /// The latest call so far, with the end of its pause; `None` before the first.
    last: Option<ThrottleCall>,
    window: ThrottleWindow,
    /// The position of the window in a cycle of [`PROBE_EACH_WINDOWS`]. The last two are probes.
    cycle: u32,
    /// The baselines.
    undisturbed_us: PerSignal<Option<u64>>,
    slowed_down: PerSignal<u64>,
    last_slowdown: Option<ThrottleSignal>,
    paused_ns: u64,
}

/// A call of [`Throttle::on_bytes`].
#[derive(Debug, Clone, Copy)]
struct ThrottleCall {
    /// The time up to which tokens have been issued.
    at_ns: u64,
    pause_ends_ns: u64,
}

impl Throttle {
    /// Creates a throttle that starts at the lowest rate. A lowest rate of 0 is changed to 1, and a highest rate below
    /// the lowest to the lowest.
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
            window: ThrottleWindow::new(),
            cycle: 0,
            undisturbed_us: PerSignal::default(),
            slowed_down: PerSignal::default(),
            last_slowdown: None,
            paused_ns: 0,
        }
    }

    /// Changes the bounds.
    pub fn reconfigure(&mut self, config: ThrottleConfig) {
        let bounds = Throttle::new(config).config;
        self.config = bounds;
        self.bytes_per_sec_min = bounds.bytes_per_sec_min;
        self.bytes_per_sec = self.bounded(self.bytes_per_sec);
    }

    /// Records the start of a compaction of a file that has `times` the garbage that makes it due.
    pub fn on_backlog(&mut self, times: u64) {
        let behind = u128::from((times / BACKLOG_TOLERATED).max(1));
        let wanted = u128::from(self.config.bytes_per_sec_min).saturating_mul(behind * behind);
        let most = self.config.bytes_per_sec_max;
        self.bytes_per_sec_min = u64::try_from(wanted).map_or(most, |wanted| wanted.min(most));
        self.bytes_per_sec = self.bounded(self.bytes_per_sec);
    }

    /// Records the latency of a commit, with or without running compactions.
    pub fn on_commit(&mut self, latency_us: u64) {
        self.window.add_commit(latency_us);
    }

    /// Returns whether the next call of [`Throttle::on_bytes`] evaluates the latencies of clients' requests: the caller then
    /// measures those since the last evaluation, and reports them to [`Throttle::on_clients`] first. `reads` is the number of
    /// reads of evicted documents since then. A window is extended for the sake of a few.
    pub fn wants_clients(&mut self, reads: u64, now_ns: u64) -> bool {
        self.window.reads = reads;
        self.is_idle(now_ns) || self.window.is_over(now_ns)
    }

    /// Records the latencies of clients' requests since the last evaluation.
    pub fn on_clients(&mut self, clients: ClientLatencies) {
        self.window.clients = clients;
    }

    /// Requests to read and write `bytes` bytes at `now_ns` of a monotonic clock. Returns the pause before that, in
    /// nanoseconds.
    pub fn on_bytes(&mut self, bytes: u64, now_ns: u64) -> u64 {
        self.refill(now_ns);
        self.look_at_window(now_ns);
        self.tokens = self.tokens.saturating_sub_unsigned(bytes);
        let missing = u128::from(self.tokens.min(0).unsigned_abs());
        let pause_ns = missing * SECOND_NS / u128::from(self.rate());
        let pause_ns = u64::try_from(pause_ns).unwrap_or(u64::MAX);
        self.paused_ns = self.paused_ns.saturating_add(pause_ns);
        let pause_ends_ns = now_ns.saturating_add(pause_ns);
        // Threads may read the clock in one order and call in another.
        let at_ns = self.last.map_or(now_ns, |last| last.at_ns.max(now_ns));
        self.last = Some(ThrottleCall {
            at_ns,
            pause_ends_ns,
        });
        pause_ns
    }

    /// Returns the current figures.
    #[must_use]
    pub fn figures(&self) -> ThrottleStats {
        ThrottleStats {
            bytes_per_sec: self.rate(),
            bytes_per_sec_min: self.bytes_per_sec_min,
            undisturbed_us: self.undisturbed_us,
            slowed_down: self.slowed_down,
            last_slowdown: self.last_slowdown,
            paused_ns: self.paused_ns,
        }
    }

    fn rate(&self) -> u64 {
        if self.window.is_lowest {
            return self.config.bytes_per_sec_min;
        }
        self.bytes_per_sec
    }

    /// Issues the tokens of the time since the last call.
    fn refill(&mut self, now_ns: u64) {
        let Some(last) = self.last else {
            return;
        };
        let rate = self.rate();
        let passed_ns = now_ns.saturating_sub(last.at_ns);
        let tokens = self.tokens.saturating_add(bytes_in(rate, passed_ns));
        // Unused tokens do not accumulate beyond a burst.
        self.tokens = tokens.min(bytes_in(rate, BURST_NS));
    }

    /// Returns whether nothing has passed for so long that clients count as undisturbed.
    fn is_idle(&self, now_ns: u64) -> bool {
        let rested_from_ns = self.last.map(|last| last.pause_ends_ns);
        rested_from_ns.is_none_or(|from_ns| now_ns.saturating_sub(from_ns) > IDLE_NS)
    }

    /// Evaluates the window if it is over.
    fn look_at_window(&mut self, now_ns: u64) {
        if self.is_idle(now_ns) {
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

    /// Learns the baselines from the window.
    fn learn(&mut self) {
        for signal in ThrottleSignal::ALL {
            let Some(latency_us) = self.window.latency_us(signal) else {
                continue;
            };
            let baseline = &mut self.undisturbed_us[signal];
            // A single window may be an exception.
            *baseline = Some(match *baseline {
                Some(known) if known > latency_us => known - (known - latency_us).div_ceil(4),
                Some(known) => known + (latency_us - known).div_ceil(4),
                None => latency_us,
            });
        }
    }

    /// Adapts the rate after a window.
    fn adapt(&mut self) {
        let (mut is_quiet, mut is_unknown, mut disturbed) = (true, false, None);
        for signal in ThrottleSignal::ALL {
            let Some(latency_us) = self.window.latency_us(signal) else {
                continue;
            };
            is_quiet = false;
            match self.undisturbed_us[signal] {
                // Without a baseline it is unknown whether these are slow.
                None => is_unknown = true,
                Some(usual_us) if self.is_disturbed(latency_us, usual_us) => {
                    disturbed.get_or_insert(signal);
                }
                Some(_) => {}
            }
        }
        let rate = self.bytes_per_sec;
        let changed = match disturbed {
            _ if is_unknown => 0,
            // The rate does not cause the latency while it is at the lowest.
            Some(_) if self.window.is_lowest => return,
            Some(signal) => {
                self.slowed_down[signal] += 1;
                self.last_slowdown = Some(signal);
                rate / 2
            }
            None if is_quiet => rate.saturating_add(rate.div_ceil(2)),
            None => rate.saturating_add(rate.div_ceil(8)),
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

/// Returns the number of bytes that a rate lets pass in a time.
fn bytes_in(bytes_per_sec: u64, ns: u64) -> i64 {
    let bytes = u128::from(bytes_per_sec) * u128::from(ns) / SECOND_NS;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
