//! The throttle of compactions, which limits their reads and writes so that commits do not slow down.
//!
//! A token bucket over bytes whose rate follows the latency of commits. It evaluates commits in windows:
//!
//! * A window whose latency exceeds the baseline by more than the tolerance halves the rate.
//! * Any other window raises it by an eighth, and one without a commit by a half, because no commit can be slowed down.
//! * The rate is the lowest while there are commits and the baseline is unknown.
//! * The baseline is learnt from undisturbed commits: those without a compaction, and those of windows at the lowest
//!   rate that follow another such window, because a disk applies writes with a delay. To see some of them in a long
//!   compaction, too, two of [`PROBE_EACH_WINDOWS`] windows run at the lowest rate. So a load that slows commits down
//!   by itself is taken for disturbance for that long at most.
//! * A file whose garbage grows faster than compactions remove it raises the lowest rate, because in the end it would
//!   fill the disk. The increase starts at [`BACKLOG_TOLERATED`] times the garbage that makes a file due, and is the
//!   square of the ratio to that. Only probes are slower then.
//!
//! Invariants:
//! * The sum of all bytes that passed never exceeds the rates so far, plus one burst and the last request, whatever the
//!   number of compactions that share the throttle.
//! * The rate never leaves its bounds, so every compaction ends.
//!
//! The module has neither a clock nor a lock: users share a throttle behind a lock, and sleep outside of it.

/// Duration of a window in ns, if enough commits occur in it.
const WINDOW_NS: u64 = 100_000_000;
/// Number of commits for which a window is extended.
const WINDOW_COMMITS: usize = 8;
/// Longest duration of a window, in ns.
const WINDOW_NS_MAX: u64 = 4 * WINDOW_NS;
/// Number of windows per cycle, of which two run at the lowest rate.
const PROBE_EACH_WINDOWS: u32 = 50;
/// Number of latencies that are kept of a window.
const SAMPLES: usize = 256;
/// Time in ns without compaction traffic after which commits count as undisturbed.
const IDLE_NS: u64 = 1_000_000_000;
/// Excess over the baseline latency, in microseconds, that is noise.
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
    /// Lowest rate in bytes per second, read and written, whatever the latency of commits.
    pub bytes_per_sec_min: u64,
    /// Highest rate in bytes per second, read and written.
    pub bytes_per_sec_max: u64,
    /// Tolerated latency of commits in percent of the baseline: 150 allows half as much again.
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
    /// The baseline latency of commits in microseconds: the 90th percentile of undisturbed commits. `None` if it is
    /// unknown.
    pub undisturbed_us: Option<u64>,
    /// Number of times that the rate was halved.
    pub slowed_down: u64,
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
    /// The 90th percentile of the latency of undisturbed commits.
    undisturbed_us: Option<u64>,
    slowed_down: u64,
    paused_ns: u64,
}

/// A call of [`Throttle::on_bytes`].
#[derive(Debug, Clone, Copy)]
struct ThrottleCall {
    /// The time up to which tokens have been issued.
    at_ns: u64,
    pause_ends_ns: u64,
}

/// The commits of a window.
#[derive(Debug)]
struct ThrottleWindow {
    start_ns: u64,
    /// The most recent latencies, in no order.
    latencies_us: Vec<u64>,
    /// Number of commits.
    commits: usize,
    /// `true` if the window is at the lowest rate.
    is_lowest: bool,
    /// `true` if the window before it was at the lowest rate, too.
    is_stable: bool,
}

impl ThrottleWindow {
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

    /// Returns the 90th percentile of the latencies, if there are any.
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
            window: ThrottleWindow {
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
        self.window.add(latency_us);
    }

    /// Requests to read and write `bytes` bytes at `now_ns` of a monotonic clock. Returns the pause before that, in
    /// nanoseconds.
    pub fn on_bytes(&mut self, bytes: u64, now_ns: u64) -> u64 {
        self.refill(now_ns);
        self.look_at_commits(now_ns);
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

    /// Evaluates the window if it is over.
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

    /// Learns the baseline from the commits of the window.
    fn learn(&mut self) {
        let Some(latency_us) = self.window.latency_us() else {
            return;
        };
        // A single window may be an exception.
        self.undisturbed_us = Some(match self.undisturbed_us {
            Some(known) if known > latency_us => known - (known - latency_us).div_ceil(4),
            Some(known) => known + (latency_us - known).div_ceil(4),
            None => latency_us,
        });
    }

    /// Adapts the rate after a window.
    fn adapt(&mut self) {
        let rate = self.bytes_per_sec;
        let changed = match (self.window.latency_us(), self.undisturbed_us) {
            (None, _) => rate.saturating_add(rate.div_ceil(2)),
            (Some(latency_us), Some(usual_us)) if self.is_disturbed(latency_us, usual_us) => {
                // The rate does not cause the latency while it is at the lowest.
                if self.window.is_lowest {
                    return;
                }
                self.slowed_down += 1;
                rate / 2
            }
            // Without a baseline it is unknown whether these are slow.
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

/// Returns the number of bytes that a rate lets pass in a time.
fn bytes_in(bytes_per_sec: u64, ns: u64) -> i64 {
    let bytes = u128::from(bytes_per_sec) * u128::from(ns) / SECOND_NS;
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
