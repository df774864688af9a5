//! A throttle with a simulated clock, and commits whose latency is a formula.

use std::collections::VecDeque;

use super::*;

const MIB: u64 = 1 << 20;
const CHUNK: u64 = 256 << 10;
const SECOND: u64 = 1_000_000_000;

/// A disk, one or more compactions, and a client that commits, each at their own times.
struct World {
    throttle: Throttle,
    now_ns: u64,
    /// The time at which each compaction continues.
    compactions: Vec<u64>,
    commits_per_sec: u64,
    next_commit_ns: u64,
    /// Latency of a commit on an otherwise idle disk.
    commit_us: u64,
    /// Compaction traffic in bytes per second that doubles the latency; ten times the traffic makes it tenfold.
    knee: u64,
    /// Bytes of the last tenth of a second, and their times.
    recent: VecDeque<(u64, u64)>,
    bytes: u64,
    commits: u64,
    commits_us: u64,
    /// The signal that clients give beside commits, with the same latency.
    clients: Option<ThrottleSignal>,
}

impl World {
    fn new(compactions: usize, commits_per_sec: u64) -> Self {
        let config = ThrottleConfig {
            bytes_per_sec_min: MIB,
            bytes_per_sec_max: 500 * MIB,
            tolerated_percent: 130,
        };
        World {
            throttle: Throttle::new(config),
            now_ns: 0,
            compactions: vec![0; compactions],
            commits_per_sec,
            next_commit_ns: 0,
            commit_us: 1000,
            knee: 100 * MIB,
            recent: VecDeque::new(),
            bytes: 0,
            commits: 0,
            commits_us: 0,
            clients: None,
        }
    }

    fn latency_us(&mut self) -> u64 {
        while (self.recent.front()).is_some_and(|(at_ns, _)| at_ns + SECOND / 10 < self.now_ns) {
            self.recent.pop_front();
        }
        let bytes: u64 = self.recent.iter().map(|(_, bytes)| bytes).sum();
        let bytes_per_sec = bytes * 10;
        self.commit_us + self.commit_us * bytes_per_sec / self.knee
    }

    /// Lets `seconds` seconds pass. Returns the number of bytes of compactions per second.
    fn run(&mut self, seconds: u64) -> u64 {
        let before = self.bytes;
        let end_ns = self.now_ns + seconds * SECOND;
        (self.commits, self.commits_us) = (0, 0);
        while self.now_ns < end_ns {
            let mut next = self.compactions.iter().copied().fold(end_ns, u64::min);
            if self.commits_per_sec > 0 {
                next = next.min(self.next_commit_ns);
            }
            self.now_ns = next.max(self.now_ns);
            self.step();
        }
        (self.bytes - before) / seconds
    }

    fn step(&mut self) {
        if self.commits_per_sec > 0 && self.next_commit_ns <= self.now_ns {
            let latency_us = self.latency_us();
            self.throttle.on_commit(latency_us);
            self.commits += 1;
            self.commits_us += latency_us;
            self.next_commit_ns = self.now_ns + SECOND / self.commits_per_sec;
        }
        for at in 0..self.compactions.len() {
            if self.compactions[at] <= self.now_ns {
                self.report_clients();
                let pause_ns = self.throttle.on_bytes(CHUNK, self.now_ns);
                self.bytes += CHUNK;
                self.recent.push_back((self.now_ns, CHUNK));
                // The transfer itself takes time, too.
                self.compactions[at] = self.now_ns + pause_ns + 100_000;
            }
        }
    }

    fn report_clients(&mut self) {
        if self.clients.is_none() || !self.throttle.wants_clients(0, self.now_ns) {
            return;
        }
        let latency_us = Some(self.latency_us());
        let mut clients = ClientLatencies::default();
        match self.clients {
            Some(ThrottleSignal::Reads) => clients.reads_us = latency_us,
            _ => clients.processor_us = latency_us,
        }
        self.throttle.on_clients(clients);
    }

    fn mean_us(&self) -> u64 {
        self.commits_us / self.commits
    }
}

#[test]
fn throttle_reaches_the_highest_rate_without_commits() {
    let mut world = World::new(1, 0);
    let first = world.run(1);
    assert!(first > MIB, "it rises from the lowest rate: {first}");
    world.run(5);
    let bytes_per_sec = world.run(5);
    // Less because of probes and of the transfer time.
    assert!(bytes_per_sec > 400 * MIB, "{bytes_per_sec}");
    assert!(bytes_per_sec <= 500 * MIB + CHUNK, "{bytes_per_sec}");
    assert_eq!(world.throttle.figures().slowed_down.sum(), 0);
}

#[test]
fn throttle_keeps_commit_latency_within_the_tolerance() {
    for commits_per_sec in [20, 1000, 20_000] {
        let mut world = World::new(2, commits_per_sec);
        world.run(30);
        let bytes_per_sec = world.run(60);
        // 30 % more is reached at 30 MiB/s.
        assert!(bytes_per_sec > 10 * MIB, "{bytes_per_sec}");
        assert!(bytes_per_sec < 40 * MIB, "{bytes_per_sec}");
        let mean_us = world.mean_us();
        assert!(mean_us < 1350, "{mean_us}");
        let undisturbed_us =
            world.throttle.figures().undisturbed_us[ThrottleSignal::Commits].expect("learnt");
        assert!((1000..1150).contains(&undisturbed_us), "{undisturbed_us}");
    }
}

#[test]
fn throttle_protects_reads_and_front_end_threads_without_commits() {
    for signal in [ThrottleSignal::Reads, ThrottleSignal::Processor] {
        let mut world = World::new(2, 0);
        world.clients = Some(signal);
        world.run(30);
        let bytes_per_sec = world.run(60);
        // 30 % more is reached at 30 MiB/s.
        assert!(bytes_per_sec > 10 * MIB, "{bytes_per_sec}");
        assert!(bytes_per_sec < 40 * MIB, "{bytes_per_sec}");
        let figures = world.throttle.figures();
        assert_eq!(figures.last_slowdown, Some(signal));
        assert!(figures.slowed_down[signal] > 0);
        assert_eq!(figures.slowed_down[signal], figures.slowed_down.sum());
        let undisturbed_us = figures.undisturbed_us[signal].expect("learnt");
        assert!((1000..1150).contains(&undisturbed_us), "{undisturbed_us}");
        // Without clients, the rate rises again.
        world.clients = None;
        world.run(10);
        assert!(world.run(5) > 400 * MIB);
    }
}

#[test]
fn window_is_extended_for_a_few_reads() {
    let mut throttle = Throttle::new(ThrottleConfig::default());
    assert!(
        throttle.wants_clients(0, 5 * SECOND),
        "before the first bytes"
    );
    throttle.on_bytes(0, 5 * SECOND);
    for (reads, after_ms, wanted) in [
        (0, 99, false),
        (0, 100, true),
        (7, 399, false),
        (7, 400, true),
        (8, 100, true),
    ] {
        let now_ns = 5 * SECOND + after_ms * 1_000_000;
        assert_eq!(
            throttle.wants_clients(reads, now_ns),
            wanted,
            "{reads} {after_ms}"
        );
    }
}

#[test]
fn throttle_yields_immediately_when_commits_begin() {
    let mut world = World::new(1, 1000);
    world.run(2);
    world.commits_per_sec = 0;
    world.run(10);
    assert!(world.throttle.figures().bytes_per_sec > 400 * MIB);
    world.commits_per_sec = 1000;
    world.next_commit_ns = world.now_ns;
    world.run(2);
    let rate = world.throttle.figures().bytes_per_sec;
    assert!(rate < 40 * MIB, "{rate}");
}

#[test]
fn throttle_stays_at_the_lowest_rate_without_a_baseline() {
    let mut world = World::new(2, 0);
    world.run(10);
    let figures = world.throttle.figures();
    assert!(figures.bytes_per_sec > 400 * MIB, "{figures:?}");
    assert_eq!(figures.undisturbed_us[ThrottleSignal::Commits], None);
    world.commits_per_sec = 1000;
    world.next_commit_ns = world.now_ns;
    world.run(1);
    let undisturbed_us =
        world.throttle.figures().undisturbed_us[ThrottleSignal::Commits].expect("learnt");
    assert!((1000..1150).contains(&undisturbed_us), "{undisturbed_us}");
    // From then on it rises from the lowest rate.
    world.run(1);
    assert!(world.mean_us() < 1350, "{}", world.mean_us());

    let mut from_the_beginning = World::new(2, 1000);
    from_the_beginning.run(5);
    let mean_us = from_the_beginning.mean_us();
    assert!(mean_us < 1350, "{mean_us}");
}

#[test]
fn throttle_adapts_to_a_disk_that_becomes_slower() {
    let mut world = World::new(1, 1000);
    world.run(30);
    world.commit_us = 5000;
    world.run(30);
    let bytes_per_sec = world.run(30);
    assert!(bytes_per_sec > 10 * MIB, "{bytes_per_sec}");
    let undisturbed_us =
        world.throttle.figures().undisturbed_us[ThrottleSignal::Commits].expect("learnt");
    assert!(undisturbed_us > 4500, "{undisturbed_us}");
    // And back again.
    world.commit_us = 1000;
    world.run(60);
    world.run(30);
    let mean_us = world.mean_us();
    assert!(mean_us < 1400, "{mean_us}");
}

#[test]
fn throttle_never_falls_below_the_lowest_rate() {
    let mut world = World::new(1, 1000);
    world.knee = MIB / 100;
    world.run(20);
    let bytes_per_sec = world.run(20);
    assert!(bytes_per_sec >= MIB - CHUNK, "{bytes_per_sec}");
    assert!(bytes_per_sec < 3 * MIB, "{bytes_per_sec}");
}

#[test]
fn backlog_of_garbage_raises_the_lowest_rate() {
    let mut world = World::new(1, 1000);
    world.knee = MIB / 100;
    for (times, lowest) in [
        (0, MIB),
        (1, MIB),
        (7, MIB),
        (8, 4 * MIB),
        (40, 100 * MIB),
        (90, 484 * MIB),
        (92, 500 * MIB),
        (u64::MAX, 500 * MIB),
        (8, 4 * MIB),
    ] {
        world.throttle.on_backlog(times);
        assert_eq!(
            world.throttle.figures().bytes_per_sec_min,
            lowest,
            "{times}"
        );
    }
    world.run(20);
    // Less because of probes.
    let behind = world.run(20);
    assert!((3 * MIB..5 * MIB).contains(&behind), "{behind}");
    // The baseline is learnt nevertheless.
    let undisturbed_us =
        world.throttle.figures().undisturbed_us[ThrottleSignal::Commits].expect("learnt");
    assert!(undisturbed_us < 250_000, "{undisturbed_us}");
    world.throttle.on_backlog(3);
    world.run(20);
    let caught_up = world.run(20);
    assert!(caught_up < 3 * MIB, "{caught_up}");
}

#[test]
fn concurrent_compactions_share_one_rate() {
    let config = ThrottleConfig {
        bytes_per_sec_min: 10 * MIB,
        bytes_per_sec_max: 10 * MIB,
        ..ThrottleConfig::default()
    };
    for compactions in [1, 2, 7] {
        let mut world = World::new(compactions, 0);
        world.throttle = Throttle::new(config);
        let bytes = world.run(100) * 100;
        let most = 100 * 10 * MIB + (compactions as u64 + 1) * CHUNK;
        assert!(bytes <= most, "{bytes}");
        assert!(bytes >= 95 * 10 * MIB, "{bytes}");
    }
}

#[test]
fn baseline_is_learnt_without_compactions() {
    let mut throttle = Throttle::new(ThrottleConfig::default());
    for _ in 0..1000 {
        throttle.on_commit(700);
    }
    assert_eq!(throttle.on_bytes(0, 5 * SECOND), 0);
    assert_eq!(
        throttle.figures().undisturbed_us[ThrottleSignal::Commits],
        Some(700)
    );
    // Between two compactions.
    for _ in 0..1000 {
        throttle.on_commit(300);
    }
    throttle.on_bytes(0, 9 * SECOND);
    assert_eq!(
        throttle.figures().undisturbed_us[ThrottleSignal::Commits],
        Some(600)
    );
}

#[test]
fn unused_tokens_are_limited_to_a_burst() {
    let config = ThrottleConfig {
        bytes_per_sec_min: 100 * MIB,
        bytes_per_sec_max: 100 * MIB,
        ..ThrottleConfig::default()
    };
    let mut throttle = Throttle::new(config);
    assert_eq!(throttle.on_bytes(100 * MIB, 0), SECOND);
    assert_eq!(throttle.on_bytes(0, SECOND), 0);
    let burst = 2 * MIB;
    assert_eq!(throttle.on_bytes(burst, 100 * SECOND), 0);
    assert_eq!(throttle.on_bytes(MIB, 100 * SECOND), SECOND / 100);
    assert_eq!(throttle.figures().paused_ns, SECOND + SECOND / 100);
}

#[test]
fn inconsistent_bounds_are_corrected() {
    let mut throttle = Throttle::new(ThrottleConfig {
        bytes_per_sec_min: 0,
        bytes_per_sec_max: 0,
        tolerated_percent: 0,
    });
    assert_eq!(throttle.on_bytes(3, 0), 3 * SECOND);
    throttle.reconfigure(ThrottleConfig {
        bytes_per_sec_min: 1000,
        bytes_per_sec_max: 10,
        tolerated_percent: 0,
    });
    assert_eq!(throttle.figures().bytes_per_sec, 1000);
    assert_eq!(throttle.on_bytes(u64::MAX, u64::MAX), u64::MAX);
}
