//! One thread of the generator: an event loop over its share of the connections.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kedge_tls::ClientStream;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::connect::Reconnector;
use super::connection::{Conn, ConnectionLoss, Core, LoadPhase};
use super::generate::{Schedule, SplitMix64, ValueSource};
use super::options::LoadPlan;
use super::stream::LoadStream;
use super::tally::{LoadProgress, LoadTally};
use super::wire::WireProtocol;
use super::zipfian::ItemChoice;

const TIMER: Token = Token(usize::MAX);
const REOPENED: Token = Token(usize::MAX - 1);
/// The number of bytes of one read from a socket.
const READ_BYTES: usize = 256 << 10;
/// The interval at which deadlines and Ctrl-C are checked.
const TICK: Duration = Duration::from_millis(100);
/// The pause of the timer after it expired. On a virtual machine each setting of it costs as much processor time as a
/// request, which the measured server then lacks. Requests that fall due in the pause are sent together, and count as
/// late.
const TIMER_PAUSE_NS: u64 = 200_000;
/// The time of an end that never comes.
const NEVER_NS: u64 = u64::MAX;
/// The time after the end of a schedule for which its unsent requests are awaited.
const CATCH_UP_NS: u64 = 10_000_000_000;

/// One thread's connections.
pub(super) struct LoadWorker<W> {
    plan: Arc<LoadPlan>,
    core: Core<W>,
    conns: Vec<Conn>,
    /// The index of the first connection among all, and the total number of connections.
    first: usize,
    poll: Poll,
    timer: Option<OwnedFd>,
    /// The time at which the timer expires; [`NEVER_NS`] if it is not set.
    wakes_ns: u64,
    /// The time before which the timer must not expire.
    pauses_until_ns: u64,
    reconnector: Reconnector,
    progress: Arc<LoadProgress>,
    stop: Arc<AtomicBool>,
    began: Instant,
}

impl<W: WireProtocol> LoadWorker<W> {
    /// Takes over open connections. `first` is the index of the first one in the plan.
    pub(super) fn new(
        plan: &Arc<LoadPlan>,
        wire: W,
        first: usize,
        streams: Vec<ClientStream>,
        progress: &Arc<LoadProgress>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut conns = Vec::with_capacity(streams.len());
        for (at, stream) in streams.into_iter().enumerate() {
            let node = plan.node_of(first + at) as u16;
            conns.push(Conn::new(LoadStream::register(&poll, stream, at)?, node));
        }
        let timer = if plan.rate.is_some() {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let source = &mut SourceFd(&timer.as_raw_fd());
            poll.registry()
                .register(source, TIMER, Interest::READABLE)?;
            Some(timer)
        } else {
            None
        };
        let waker = Waker::new(poll.registry(), REOPENED)?;
        let reconnector = Reconnector::start(Arc::clone(plan), first, move || {
            // Without a wake the next tick finds it.
            let _ = waker.wake();
        })?;
        let mut random = SplitMix64::new(plan.seed ^ (first as u64) << 32);
        let values = ValueSource::new(plan, &mut random);
        let core = Core {
            wire,
            phase: LoadPhase::Populate,
            items: ItemChoice::new(plan.items, plan.zipfian),
            sequential: plan.sequential,
            in_batches: plan.in_batches,
            set_below: (u64::from(plan.set_pct) << 32) / 100,
            random,
            values,
            tally: LoadTally::new(),
            buffer: vec![0; READ_BYTES],
            end_ns: NEVER_NS,
            in_flight: 0,
        };
        Ok(Self {
            plan: Arc::clone(plan),
            core,
            conns,
            first,
            poll,
            timer,
            wakes_ns: NEVER_NS,
            pauses_until_ns: 0,
            reconnector,
            progress: Arc::clone(progress),
            stop: Arc::clone(stop),
            began: Instant::now(),
        })
    }

    /// Stores this thread's share of the items.
    pub(super) fn populate(&mut self) -> io::Result<LoadTally> {
        for (at, conn) in self.conns.iter_mut().enumerate() {
            let part = self.plan.share_of(self.first + at);
            let wire = &self.core.wire;
            let count = part.clone().filter(|&item| wire.is_at(item, conn.node));
            conn.schedule = None;
            conn.begin(self.plan.populate_window, count.count() as u64, part);
        }
        self.core.phase = LoadPhase::Populate;
        self.drive(NEVER_NS, 0)
    }

    /// Runs the load.
    pub(super) fn run(&mut self) -> io::Result<LoadTally> {
        let all = self.plan.connections;
        for (at, conn) in self.conns.iter_mut().enumerate() {
            let at = self.first + at;
            let wire = &self.core.wire;
            let has_items =
                |part: &Range<u64>| part.clone().any(|item| wire.is_at(item, conn.node));
            // With many connections some have no share: these use all items. A connection to a node without items sends
            // nothing.
            let parts = [self.plan.share_of(at), 0..self.plan.items];
            let part = parts.into_iter().find(has_items);
            let rate = self.plan.rate.filter(|_| part.is_some());
            conn.schedule = rate.map(|rate| Schedule::new(rate, at, all));
            let requests = part
                .as_ref()
                .map_or(0, |_| self.plan.requests.unwrap_or(u64::MAX));
            conn.begin(self.plan.window, requests, part.unwrap_or_default());
        }
        self.core.phase = LoadPhase::Run;
        let end_ns = self.plan.duration.map_or(NEVER_NS, nanoseconds);
        self.drive(end_ns, nanoseconds(self.plan.warmup))
    }

    /// Serves the connections until all requests due before `end_ns` have replies. Replies before `warm_ns` are not
    /// counted.
    fn drive(&mut self, end_ns: u64, warm_ns: u64) -> io::Result<LoadTally> {
        self.began = Instant::now();
        (self.wakes_ns, self.pauses_until_ns) = (NEVER_NS, 0);
        self.core.tally = LoadTally::new();
        self.core.end_ns = end_ns;
        let mut counting_since_ns = 0;
        let mut next_tick_ns = nanoseconds(TICK);
        let mut events = Events::with_capacity(1024);
        for at in 0..self.conns.len() {
            if self.conns[at].stream.is_none() && !self.conns[at].given_up {
                // Lost with nothing left to do in the previous phase.
                self.reconnector.lost(at);
            }
            self.pump(at);
        }
        loop {
            let now_ns = self.now_ns();
            if counting_since_ns < warm_ns && now_ns >= warm_ns {
                self.core.tally = LoadTally::new();
                counting_since_ns = now_ns;
            }
            if now_ns >= next_tick_ns {
                next_tick_ns = now_ns + nanoseconds(TICK);
                self.tick(now_ns);
            }
            if self.is_over(now_ns) {
                break;
            }
            self.arm_timer(now_ns)?;
            match self.poll.poll(&mut events, Some(TICK)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            }
            for event in &events {
                match event.token() {
                    TIMER => self.pump_due(),
                    REOPENED => self.take_reopened(),
                    Token(at) => self.ready(at, event.is_readable(), event.is_writable()),
                }
            }
        }
        self.account_for_the_rest();
        let elapsed_ns = self.now_ns().saturating_sub(counting_since_ns);
        let mut tally = std::mem::replace(&mut self.core.tally, LoadTally::new());
        tally.elapsed_ns = elapsed_ns;
        Ok(tally)
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.began.elapsed())
    }

    fn is_over(&self, now_ns: u64) -> bool {
        let end_ns = self.core.end_ns;
        if self.core.in_flight > 0 {
            return false;
        }
        let caught_up = now_ns >= end_ns.saturating_add(CATCH_UP_NS);
        caught_up || self.conns.iter().all(|conn| conn.is_done(end_ns, now_ns))
    }

    /// Sends due requests on one connection.
    fn pump(&mut self, at: usize) {
        let now_ns = self.now_ns();
        if let Err(lost) = self.conns[at].pump(&mut self.core, now_ns) {
            self.lost(at, &lost);
        }
    }

    fn ready(&mut self, at: usize, readable: bool, writable: bool) {
        let (conn, core, progress) = (&mut self.conns[at], &mut self.core, &self.progress);
        if conn.stream.is_none() {
            return;
        }
        let began = self.began;
        if readable {
            let counted = |answers: u64, errors: u64| {
                progress.done.fetch_add(answers, Ordering::Relaxed);
                if errors > 0 {
                    progress.errors.fetch_add(errors, Ordering::Relaxed);
                }
            };
            let now = || nanoseconds(began.elapsed());
            if let Err(lost) = conn.receive(core, now, counted) {
                return self.lost(at, &lost);
            }
        }
        if writable && self.conns[at].has_unsent() {
            self.pump(at);
        }
    }

    /// Counts the requests in flight on a broken connection as errors, and starts a reconnect.
    #[cold]
    fn lost(&mut self, at: usize, lost: &ConnectionLoss) {
        let conn = &mut self.conns[at];
        conn.stream = None;
        let in_flight = conn.forget();
        self.core.in_flight -= in_flight;
        self.core.tally.lost += 1;
        self.core.tally.error(&lost.name(), in_flight as u64);
        self.progress
            .errors
            .fetch_add(in_flight as u64, Ordering::Relaxed);
        if !conn.is_done(self.core.end_ns, nanoseconds(self.began.elapsed())) {
            self.reconnector.lost(at);
        }
    }

    #[cold]
    fn take_reopened(&mut self) {
        for (at, result) in self.reconnector.take() {
            let registered = match result {
                Ok(stream) => {
                    let registered = LoadStream::register(&self.poll, stream, at);
                    registered.map_err(|error| error.to_string())
                }
                Err(error) => Err(error.to_string()),
            };
            match registered {
                Ok(stream) => {
                    self.conns[at].stream = Some(stream);
                    self.core.tally.reconnected += 1;
                    self.pump(at);
                }
                Err(error) => {
                    self.conns[at].given_up = true;
                    self.core
                        .tally
                        .error(&format!("not reconnected: {error}"), 1);
                }
            }
        }
    }

    /// Checks deadlines.
    fn tick(&mut self, now_ns: u64) {
        if self.stop.load(Ordering::Relaxed) {
            self.core.end_ns = self.core.end_ns.min(now_ns);
        }
        let timeout_ns = nanoseconds(self.plan.timeout);
        for at in 0..self.conns.len() {
            let conn = &self.conns[at];
            let waits_ns = now_ns.saturating_sub(conn.heard_ns);
            if conn.stream.is_some() && conn.in_flight() > 0 && waits_ns > timeout_ns {
                self.lost(at, &ConnectionLoss::Broken("no answer in time"));
            } else if conn.schedule.is_some() {
                self.pump(at);
            }
        }
        // Its wake may have been lost.
        self.take_reopened();
    }

    /// Counts requests that were due but are not sent at the end of the run as failed.
    fn account_for_the_rest(&mut self) {
        let end_ns = self.core.end_ns;
        let behind = |conn: &Conn| conn.schedule.as_ref().map_or(0, |it| it.behind(end_ns));
        if end_ns != NEVER_NS {
            let unsent = self.conns.iter().map(behind).sum();
            self.core.tally.error("due but never sent", unsent);
        }
        for conn in &mut self.conns {
            conn.schedule = None;
        }
    }

    /// Sends the due requests of a schedule.
    fn pump_due(&mut self) {
        if let Some(timer) = &self.timer {
            // Only the wake matters, not the number of expirations.
            let _ = rustix::io::read(timer, &mut [0_u8; 8]);
        }
        let now_ns = self.now_ns();
        (self.wakes_ns, self.pauses_until_ns) = (NEVER_NS, now_ns + TIMER_PAUSE_NS);
        for at in 0..self.conns.len() {
            if self.conns[at]
                .schedule
                .is_some_and(|schedule| schedule.due_ns() <= now_ns)
            {
                self.pump(at);
            }
        }
    }

    /// Sets the timer to the next due request; the poll's own timeout has only millisecond precision.
    fn arm_timer(&mut self, now_ns: u64) -> io::Result<()> {
        let Some(timer) = &self.timer else {
            return Ok(());
        };
        if self.wakes_ns <= self.pauses_until_ns {
            return Ok(());
        }
        let due = |conn: &Conn| {
            let schedule = conn.schedule.filter(|_| conn.can_send())?;
            Some(schedule.due_ns())
        };
        let Some(next_ns) = self.conns.iter().filter_map(due).min() else {
            return Ok(());
        };
        let wakes_ns = next_ns.max(self.pauses_until_ns);
        if self.wakes_ns == wakes_ns {
            return Ok(());
        }
        self.wakes_ns = wakes_ns;
        // A time of 0 would disarm it.
        let wait_ns = wakes_ns.saturating_sub(now_ns).max(1);
        let wait = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        };
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: wait,
        };
        timerfd_settime(timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Returns whether every connection is lost for good, though there was more to do.
    pub(super) fn is_stranded(&self) -> bool {
        self.conns.iter().all(|conn| conn.given_up)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
