//! `kedge load`: a load generator for Kedge, memcached and Redis.
//!
//! One operating-system thread drives many connections over one poll. It shares the machine with the measured server,
//! so it does little per request: frames are copied from templates, replies are only scanned for their end and status,
//! and a connection is read once and written once per turn.

mod connect;
mod connection;
mod generate;
mod options;
mod report;
mod stream;
mod tally;
mod wire;
mod worker;
mod zipfian;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use kedge_tls::ClientStream;
use rustix::process::{Resource, getrlimit, setrlimit};

pub(crate) use options::{LoadArgs, PlanError};

use self::generate::share;
use self::options::{LoadPlan, Protocol};
use self::report::RunReport;
use self::tally::{LoadProgress, LoadTally};
use self::wire::{Binary, Resp, Text, WireProtocol};
use self::worker::LoadWorker;
use crate::client::ClientError;
use crate::output;

/// The pause between updates of the progress display.
const SHOW_EVERY: Duration = Duration::from_millis(200);

/// The reason why a run did not take place.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum LoadError {
    /// The flags are invalid.
    #[error(transparent)]
    LoadPlan(#[from] PlanError),
    /// The server is unreachable or refuses the login.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The operating system refused a request.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// All connections were lost and none was reconnected.
    #[error("all connections were lost, and none could be reopened")]
    Stranded,
}

/// Runs the load and prints its report. Returns whether every request succeeded.
///
/// # Errors
/// [`LoadError`] when there is nothing to report, or all connections are lost.
pub(crate) fn run(args: &LoadArgs) -> Result<bool, LoadError> {
    let mut plan = LoadPlan::new(args)?;
    raise_file_limit();
    let prefix = plan.key_prefix.clone();
    match plan.protocol {
        Protocol::Couchbase => {
            let map = connect::map(&plan)?;
            plan.use_nodes(map.nodes)?;
            let wire = Binary::new(&prefix, map.vbuckets, map.actives, plan.durability);
            run_with(plan, &wire, args.json)
        }
        Protocol::Memcached => {
            let wire = Binary::new(&prefix, 0, Vec::new(), None);
            run_with(plan, &wire, args.json)
        }
        Protocol::MemcachedText => run_with(plan, &Text::new(&prefix), args.json),
        Protocol::Redis => {
            let wire = Resp::new(&prefix, plan.wait_replicas);
            run_with(plan, &wire, args.json)
        }
    }
}

fn run_with<W: WireProtocol>(plan: LoadPlan, wire: &W, json: bool) -> Result<bool, LoadError> {
    let plan = &Arc::new(plan);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let streams = connect::open_all(plan)?;
    let progress = Arc::new(LoadProgress::default());
    let mut workers = make_workers(plan, wire, streams, &progress, &stop)?;
    let show = !json && io::stderr().is_terminal();

    let mut populated = None;
    if plan.populate_window > 0 {
        let shown = ProgressDisplay::new(show, "storing", Some(plan.items), None);
        populated = Some(drive(
            &mut workers,
            LoadWorker::populate,
            &progress,
            &shown,
        )?);
    }
    let total = plan
        .requests
        .map(|each| each.saturating_mul(plan.connections as u64));
    let shown = ProgressDisplay::new(show, "running", total, plan.duration);
    let stranded_before = workers.iter().all(LoadWorker::is_stranded);
    let tally = if stop.load(Ordering::Relaxed) || stranded_before {
        LoadTally::new()
    } else {
        drive(&mut workers, LoadWorker::run, &progress, &shown)?
    };
    let report = RunReport::new(plan, populated.as_ref(), &tally);
    output::print(&if json { report.json() } else { report.table() })?;
    if workers.iter().all(LoadWorker::is_stranded) {
        return Err(LoadError::Stranded);
    }
    Ok(report.is_clean())
}

fn make_workers<W: WireProtocol>(
    plan: &Arc<LoadPlan>,
    wire: &W,
    mut streams: Vec<ClientStream>,
    progress: &Arc<LoadProgress>,
    stop: &Arc<AtomicBool>,
) -> Result<Vec<LoadWorker<W>>, LoadError> {
    let mut workers = Vec::with_capacity(plan.workers);
    for at in (0..plan.workers).rev() {
        let first = share(plan.connections as u64, at, plan.workers).start as usize;
        let part = streams.split_off(first);
        workers.push(LoadWorker::new(
            plan,
            wire.clone(),
            first,
            part,
            progress,
            stop,
        )?);
    }
    Ok(workers)
}

/// Runs one phase on all workers in parallel and merges their counts.
fn drive<W: WireProtocol>(
    workers: &mut [LoadWorker<W>],
    phase: impl Fn(&mut LoadWorker<W>) -> io::Result<LoadTally> + Sync,
    progress: &LoadProgress,
    shown: &ProgressDisplay,
) -> Result<LoadTally, LoadError> {
    progress.done.store(0, Ordering::Relaxed);
    progress.errors.store(0, Ordering::Relaxed);
    let result = thread::scope(|scope| {
        let phase = &phase;
        let threads: Vec<_> = workers
            .iter_mut()
            .map(|worker| scope.spawn(move || phase(worker)))
            .collect();
        while shown.is_on() && !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            shown.update(progress);
            thread::sleep(SHOW_EVERY);
        }
        let mut merged = LoadTally::new();
        for thread in threads {
            merged.merge(
                &thread
                    .join()
                    .expect("a thread of the generator does not panic")?,
            );
        }
        Ok(merged)
    });
    shown.finish();
    result
}

/// The progress display of a phase, on a terminal.
struct ProgressDisplay {
    bar: Option<ProgressBar>,
    began: Instant,
    length: ProgressUnit,
}

/// The meaning of the bar's length.
#[derive(Clone, Copy)]
enum ProgressUnit {
    Requests,
    Milliseconds,
    Endless,
}

impl ProgressDisplay {
    fn new(on: bool, what: &'static str, total: Option<u64>, duration: Option<Duration>) -> Self {
        let (length, full) = match (total, duration) {
            (Some(total), None) => (ProgressUnit::Requests, total),
            (_, Some(duration)) => (ProgressUnit::Milliseconds, duration.as_millis() as u64),
            (None, None) => (ProgressUnit::Endless, 0),
        };
        let bar = on.then(|| {
            let template = match length {
                ProgressUnit::Endless => "{prefix} {spinner} {elapsed} {msg}",
                ProgressUnit::Requests | ProgressUnit::Milliseconds => {
                    "{prefix} [{bar:30}] {percent:>3} % {elapsed} {msg}"
                }
            };
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(full)
                .with_style(style.progress_chars("#>-"))
                .with_prefix(what)
        });
        Self {
            bar,
            began: Instant::now(),
            length,
        }
    }

    const fn is_on(&self) -> bool {
        self.bar.is_some()
    }

    fn update(&self, progress: &LoadProgress) {
        let Some(bar) = &self.bar else { return };
        let done = progress.done.load(Ordering::Relaxed);
        let errors = progress.errors.load(Ordering::Relaxed);
        let seconds = self.began.elapsed().as_secs_f64().max(1e-3);
        match self.length {
            ProgressUnit::Requests => bar.set_position(done),
            ProgressUnit::Milliseconds => bar.set_position((seconds * 1e3) as u64),
            ProgressUnit::Endless => bar.tick(),
        }
        bar.set_message(format!(
            "{:.0} ops/s, {errors} errors",
            done as f64 / seconds
        ));
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Raises the limit of open files as far as the system allows: each connection is one.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it fails, opening the connections reports the limit.
    let _ = setrlimit(Resource::Nofile, limit);
}
