//! Counters of the whole server: connections, bytes, statuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use kedge_types::Status;

/// Number of possible statuses.
const STATUSES: usize = 0x100;

/// Shortest time between two log lines about long turns, in nanoseconds.
const LONG_TURN_LOG_NS: u64 = 10_000_000_000;

/// Counters of one front-end thread, which alone writes them. Readers may see them a moment late.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ThreadMetrics {
    connections: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    commands: AtomicU64,
    turns: AtomicU64,
    spins: AtomicU64,
    long_turns: AtomicU64,
    longest_turn_ns: AtomicU64,
    long_commands: AtomicU64,
    continued_answers: AtomicU64,
    statuses: Box<[AtomicU64]>,
    /// True if several threads write the counters.
    is_shared: bool,
}

/// Adds to a counter that only the calling thread writes, so no atomic addition is needed.
fn bump(count: &AtomicU64, by: u64) {
    count.store(
        count.load(Ordering::Relaxed).wrapping_add(by),
        Ordering::Relaxed,
    );
}

impl ThreadMetrics {
    fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            long_turns: AtomicU64::new(0),
            longest_turn_ns: AtomicU64::new(0),
            long_commands: AtomicU64::new(0),
            continued_answers: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
            commands: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            spins: AtomicU64::new(0),
            statuses: (0..STATUSES).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(crate) fn set_connections(&self, count: usize) {
        self.connections.store(count as u64, Ordering::Relaxed);
    }

    /// Counts a command that was offloaded to a task.
    pub(crate) fn offloaded(&self) {
        bump(&self.long_commands, 1);
    }

    /// Counts the continuation of a long answer.
    pub(crate) fn continued(&self) {
        self.add_one(&self.continued_answers);
    }

    pub(crate) fn read(&self, bytes: usize) {
        bump(&self.bytes_read, bytes as u64);
    }

    pub(crate) fn wrote(&self, bytes: usize) {
        bump(&self.bytes_written, bytes as u64);
    }

    pub(crate) fn turn(&self) {
        bump(&self.turns, 1);
    }

    /// Counts a wait for the disk that ended before the thread slept.
    pub(crate) fn spun(&self) {
        bump(&self.spins, 1);
    }

    pub(crate) fn command(&self) {
        self.add_one(&self.commands);
    }

    pub(crate) fn replied(&self, status: Status) {
        if let Some(count) = self.statuses.get(usize::from(status.wire())) {
            self.add_one(count);
        }
    }

    fn add_one(&self, count: &AtomicU64) {
        if self.is_shared {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            bump(count, 1);
        }
    }
}

/// The counters of the server.
#[derive(Debug)]
pub struct Metrics {
    started: Instant,
    /// Counters of the front-end threads, and behind them those of tasks that execute commands.
    threads: Box<[ThreadMetrics]>,
    /// The time of the last log line about a long turn, nanoseconds of the monotonic clock.
    long_turn_logged_ns: AtomicU64,
    pub(crate) open: AtomicU64,
    /// Open connections of the memcached port.
    pub(crate) open_memcached: AtomicU64,
    /// Evicted connections without a login.
    pub(crate) evicted: AtomicU64,
    /// Evicted connections of the memcached port, those without a login not counted.
    pub(crate) evicted_memcached: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) auth_commands: AtomicU64,
    pub(crate) auth_errors: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) malformed: AtomicU64,
    /// Open TLS connections.
    open_tls: AtomicU64,
    /// TLS connections that ended without close_notify.
    pub(crate) tls_truncated: AtomicU64,
    connections_max: AtomicU64,
    /// Connections of the KV port with a login of a client; those of nodes are not counted.
    clients: AtomicU64,
}

/// A snapshot of the counters. They start at 0 with the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Open connections.
    pub curr_connections: u64,
    /// Accepted connections since the start.
    pub total_connections: u64,
    /// Connections refused because there were too many.
    pub rejected_connections: u64,
    /// Connections that had not logged in and were closed to make room for others.
    pub evicted_connections: u64,
    /// Open connections of the memcached port.
    pub memcached_connections: u64,
    /// Connections of the memcached port that were idle, or of an address with too many, and were closed to make room
    /// for others.
    pub memcached_connections_evicted: u64,
    /// Most connections at a time.
    pub max_connections: u64,
    /// Failed calls of accept, for lack of file descriptors for example.
    pub accept_errors: u64,
    /// Login attempts.
    pub auth_commands: u64,
    /// Failed logins.
    pub auth_errors: u64,
    /// Connections closed by a time limit.
    pub timed_out_connections: u64,
    /// Connections closed because of a malformed request.
    pub malformed_connections: u64,
    /// Bytes received.
    pub bytes_read: u64,
    /// Bytes sent.
    pub bytes_written: u64,
    /// Commands executed.
    pub commands: u64,
    /// Turns of the event loops.
    pub turns: u64,
    /// Waits of the event loops for the disk that ended before the thread slept.
    pub spins: u64,
    /// Parts of turns of front-end threads that took longer than 10 ms: for one connection, one message, or all
    /// connections.
    pub long_turns: u64,
    /// The longest turn, in microseconds.
    pub longest_turn_us: u64,
    /// Commands that front-end threads offloaded to tasks, as they take long.
    pub long_commands: u64,
    /// Times that answers were continued that do not fit into the output of a connection, or into one turn.
    pub continued_answers: u64,
    /// Connections of the key-value port with a login of a client; those of other nodes are not counted.
    pub client_connections: u64,
    /// Open TLS connections, of all ports of the front end.
    pub tls_connections: u64,
    /// TLS connections whose clients ended them without close_notify, after the handshake.
    pub tls_truncated: u64,
    /// Front-end threads.
    pub threads: u64,
}

/// The counters of one front-end thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadSnapshot {
    /// Open connections.
    pub(crate) connections: u64,
    /// Commands executed.
    pub(crate) commands: u64,
    /// Bytes received.
    pub(crate) bytes_read: u64,
    /// Bytes sent.
    pub(crate) bytes_written: u64,
    /// Turns of its event loop.
    pub(crate) turns: u64,
    /// Waits for the disk that were over before it slept.
    pub(crate) spins: u64,
}

/// A connection's slot among the KV connections with a login of a client; free when it is dropped.
pub(crate) struct ClientSlot(Arc<Metrics>);

impl ClientSlot {
    /// Takes a slot, unless `max` are taken.
    pub(crate) fn take(metrics: &Arc<Metrics>, max: u32) -> Option<Self> {
        metrics.clients.fetch_add(1, Ordering::SeqCst);
        let place = Self(Arc::clone(metrics));
        (metrics.clients() <= u64::from(max)).then_some(place)
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An open TLS connection in the count of them.
pub(crate) struct OpenTls(Arc<Metrics>);

impl OpenTls {
    /// Counts a connection until it is dropped.
    pub(crate) fn count(metrics: &Arc<Metrics>) -> Self {
        Metrics::count(&metrics.open_tls);
        Self(Arc::clone(metrics))
    }
}

impl Drop for OpenTls {
    fn drop(&mut self) {
        self.0.open_tls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn new(threads: u16) -> Self {
        Self {
            started: Instant::now(),
            threads: (0..=threads)
                .map(|thread| ThreadMetrics::new(thread == threads))
                .collect(),
            long_turn_logged_ns: AtomicU64::new(0),
            open: AtomicU64::new(0),
            open_memcached: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            evicted_memcached: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            accept_errors: AtomicU64::new(0),
            auth_commands: AtomicU64::new(0),
            auth_errors: AtomicU64::new(0),
            timed_out: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            open_tls: AtomicU64::new(0),
            tls_truncated: AtomicU64::new(0),
            connections_max: AtomicU64::new(0),
            clients: AtomicU64::new(0),
        }
    }

    pub(crate) fn thread(&self, thread: u16) -> &ThreadMetrics {
        &self.threads[usize::from(thread)]
    }

    /// The index of the counters of tasks.
    pub(crate) fn tasks(&self) -> u16 {
        self.threads.len() as u16 - 1
    }

    /// Counts a turn that was too long. Returns true if it is to be logged: not each of many.
    pub(crate) fn long_turn(&self, thread: u16, now_ns: u64, took_ns: u64) -> bool {
        let of_thread = self.thread(thread);
        bump(&of_thread.long_turns, 1);
        of_thread
            .longest_turn_ns
            .fetch_max(took_ns, Ordering::Relaxed);
        let last_ns = self.long_turn_logged_ns.load(Ordering::Relaxed);
        let is_due = last_ns == 0 || now_ns.saturating_sub(last_ns) >= LONG_TURN_LOG_NS;
        is_due
            && self
                .long_turn_logged_ns
                .compare_exchange(last_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    pub(crate) fn set_connections_max(&self, max: u64) {
        self.connections_max.store(max, Ordering::Relaxed);
    }

    /// Connections of clients, with or without a login.
    pub(crate) fn clients(&self) -> u64 {
        self.clients.load(Ordering::SeqCst) + self.open_memcached.load(Ordering::Relaxed)
    }

    /// A connection was accepted.
    pub(crate) fn opened(&self, is_memcached: bool) {
        Self::count(&self.accepted);
        Self::count(&self.open);
        if is_memcached {
            Self::count(&self.open_memcached);
        }
    }

    /// A connection that was accepted has ended.
    pub(crate) fn closed(&self, is_memcached: bool) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if is_memcached {
            self.open_memcached.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a rare event. Any thread may.
    pub(crate) fn count(count: &AtomicU64) {
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn snapshot(&self) -> MetricsSnapshot {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let sum =
            |of: fn(&ThreadMetrics) -> &AtomicU64| self.threads.iter().map(|t| load(of(t))).sum();
        MetricsSnapshot {
            uptime_s: self.started.elapsed().as_secs(),
            curr_connections: load(&self.open),
            total_connections: load(&self.accepted),
            rejected_connections: load(&self.rejected),
            client_connections: load(&self.clients),
            evicted_connections: load(&self.evicted),
            memcached_connections: load(&self.open_memcached),
            memcached_connections_evicted: load(&self.evicted_memcached),
            max_connections: load(&self.connections_max),
            accept_errors: load(&self.accept_errors),
            auth_commands: load(&self.auth_commands),
            auth_errors: load(&self.auth_errors),
            timed_out_connections: load(&self.timed_out),
            malformed_connections: load(&self.malformed),
            bytes_read: sum(|t| &t.bytes_read),
            bytes_written: sum(|t| &t.bytes_written),
            commands: sum(|t| &t.commands),
            turns: sum(|t| &t.turns),
            spins: sum(|t| &t.spins),
            long_turns: sum(|t| &t.long_turns),
            longest_turn_us: self
                .threads
                .iter()
                .map(|t| load(&t.longest_turn_ns) / 1_000)
                .max()
                .unwrap_or(0),
            long_commands: sum(|t| &t.long_commands),
            continued_answers: sum(|t| &t.continued_answers),
            tls_connections: load(&self.open_tls),
            tls_truncated: load(&self.tls_truncated),
            threads: u64::from(self.tasks()),
        }
    }

    /// Number of replies with each status, zeros left out.
    #[must_use]
    pub fn responses(&self) -> Vec<(Status, u64)> {
        let count = |status: Status| -> u64 {
            let at = usize::from(status.wire());
            self.threads
                .iter()
                .map(|t| t.statuses[at].load(Ordering::Relaxed))
                .sum()
        };
        let counts = Status::ALL.iter().map(|&status| (status, count(status)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Open connections of each front-end thread.
    #[must_use]
    pub fn connections_by_thread(&self) -> Vec<u64> {
        self.by_thread().map(|thread| thread.connections).collect()
    }

    /// The counters of each front-end thread.
    pub(crate) fn by_thread(&self) -> impl Iterator<Item = ThreadSnapshot> {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let threads = self.threads.iter().take(usize::from(self.tasks()));
        threads.map(move |thread| ThreadSnapshot {
            connections: load(&thread.connections),
            commands: load(&thread.commands),
            bytes_read: load(&thread.bytes_read),
            bytes_written: load(&thread.bytes_written),
            turns: load(&thread.turns),
            spins: load(&thread.spins),
        })
    }

    /// Calls `each` with the name and value of every counter, under memcached's names where it has the same (memcached
    /// doc/protocol.txt, "General-purpose statistics").
    pub fn stats(&self, each: &mut dyn FnMut(&str, &str)) {
        let now = self.snapshot();
        let rows = [
            ("uptime", now.uptime_s),
            ("threads", now.threads),
            ("curr_connections", now.curr_connections),
            ("total_connections", now.total_connections),
            ("rejected_connections", now.rejected_connections),
            ("client_connections", now.client_connections),
            ("evicted_connections", now.evicted_connections),
            ("memcached_connections", now.memcached_connections),
            (
                "memcached_connections_evicted",
                now.memcached_connections_evicted,
            ),
            ("max_connections", now.max_connections),
            ("accept_errors", now.accept_errors),
            ("auth_cmds", now.auth_commands),
            ("auth_errors", now.auth_errors),
            ("timed_out_connections", now.timed_out_connections),
            ("malformed_connections", now.malformed_connections),
            ("bytes_read", now.bytes_read),
            ("bytes_written", now.bytes_written),
            ("cmd_total", now.commands),
            ("event_loop_turns", now.turns),
            ("event_loop_spins", now.spins),
            ("event_loop_long_turns", now.long_turns),
            ("event_loop_longest_turn_us", now.longest_turn_us),
            ("event_loop_long_commands", now.long_commands),
            ("event_loop_continued_answers", now.continued_answers),
            ("tls_connections", now.tls_connections),
            ("tls_connections_truncated", now.tls_truncated),
        ];
        for (name, value) in rows {
            each(name, &value.to_string());
        }
    }
}
