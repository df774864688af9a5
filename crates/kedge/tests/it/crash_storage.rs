//! Writes that were acknowledged as persisted survive `kill -9` while every mechanism that moves documents is at work.
//!
//! The documents do not fit in memory: values leave it all the time, and are read from the files again. What the log has
//! goes into the files a moment later, the log gives back its segments, and all files are compacted one after the other
//! without a pause. No process is killed before its statistics say that all of that has happened in it, nor while no file
//! is being compacted. Each start may have another eviction policy, and may have a log or not; so a log that a kill left
//! goes into the files, too. In every other process compactions are slow, so that the kill finds one half done.
//!
//! After each kill, `kedge check` finds every file whole, and after each restart documents, CAS values and seqnos are what
//! the histories of the writers allow, as in `crash`.
//!
//! `KEDGE_STORAGE_CRASH_ROUNDS` is the number of kills (6), `KEDGE_STORAGE_CRASH_SEED` repeats a run's choices.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use kedge::client::ClientConnection;
use kedge_protocol::binary::Opcode;
use kedge_types::{Status, VbId};

use crate::histories::{Habits, Published, Writer};
use crate::process::{PATIENCE, Server, kedge, run};
use crate::random::{Random, count_from_environment};

const WRITERS: usize = 4;
/// All of them are likely to have 5 MiB, which is more than fits.
const HABITS: Habits = Habits {
    keys: 90,
    value_bytes_max: 32 << 10,
    one_read_in: Some(3),
    passing: &[
        Status::TemporaryFailure,
        Status::SyncWriteInProgress,
        Status::SyncWriteAmbiguous,
    ],
};
const QUOTA: &str = "--bucket-quota=3MiB";
const VBUCKETS: u16 = 8;
/// The largest number of acknowledged writes before a kill, unless it waits for something else.
const WRITES_MAX: u64 = 400;
const ROUNDS_DEFAULT: u64 = 6;

/// The configuration of a server.
#[derive(Clone, Copy, Debug)]
struct Mode {
    commit_log: bool,
    full_eviction: bool,
    keep_files_open: bool,
    slow_compactions: bool,
}

/// Half a second or more for each file.
const SLOW_PACE: &str = "--compaction-throttle=1048576";

impl Mode {
    /// A log two times out of three.
    fn choose(random: &mut Random, round: u64) -> Self {
        Self {
            slow_compactions: round.is_multiple_of(2),
            commit_log: random.below(3) > 0,
            full_eviction: random.below(2) == 0,
            keep_files_open: random.below(4) > 0,
        }
    }

    fn start(self, dir: &Path) -> Server {
        let vbuckets = format!("--vbuckets={VBUCKETS}");
        let commit_log = format!("--commit-log={}", self.commit_log);
        let keep = format!("--keep-files-open={}", self.keep_files_open);
        let eviction = if self.full_eviction {
            "--eviction-policy=full_eviction"
        } else {
            "--eviction-policy=value_only"
        };
        let throttle = if self.slow_compactions {
            SLOW_PACE
        } else {
            "--compaction-throttle=off"
        };
        let args = [
            &*vbuckets,
            &*commit_log,
            &*keep,
            eviction,
            QUOTA,
            "--apply-max-lag=30ms",
            "--log-bytes-max=512KiB",
            throttle,
            "--compaction-fragmentation-percent=20",
            "--compaction-min-bytes=4KiB",
            "--compaction-max-concurrent=2",
        ];
        Server::start(dir, &args)
    }

    /// Events that must have happened in the process: any one of each group.
    fn wanted(self) -> [&'static [&'static str]; 4] {
        let eviction: &[_] = if self.full_eviction {
            &["ep_num_item_ejects"]
        } else {
            &["ep_num_value_ejects"]
        };
        let commits: &[_] = if self.commit_log {
            &["ep_apply_commits"]
        } else {
            &["ep_flush_commits"]
        };
        [
            eviction,
            commits,
            &["ep_compactions"],
            &["ep_bg_fetched", "ep_bg_meta_fetched"],
        ]
    }
}

/// The general statistics that are numbers.
fn figures(connection: &mut ClientConnection) -> BTreeMap<String, u64> {
    let stats = connection.stat("").expect("statistics");
    let number = |(name, text): (String, String)| Some((name, text.parse().ok()?));
    stats.into_iter().filter_map(number).collect()
}

/// Compacts one file after the other until the server is gone.
fn compact_all_the_time(connection: &mut ClientConnection, stop: &AtomicBool) {
    for vb in (0..VBUCKETS).cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let mut request = connection.document(Opcode::CompactDb, b"");
        request.vb = VbId(vb);
        match connection.call(&request, &[0; 24], b"", b"") {
            Ok(reply) => {
                let status = Status::from_wire(reply.code);
                // Something else may need the file at once.
                let fine = [Some(Status::Success), Some(Status::TemporaryFailure)];
                assert!(fine.contains(&status), "compaction of {vb}: {status:?}");
            }
            Err(error) if error.is_fatal() => return,
            Err(error) => panic!("compaction of {vb}: {error}"),
        }
    }
}

/// Waits until all that is wanted has happened since `before`.
fn wait_for_everything(
    connection: &mut ClientConnection,
    mode: Mode,
    before: &BTreeMap<String, u64>,
) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = figures(connection);
        let grown = |name: &&str| now[*name] > before[*name];
        let missing = mode.wanted().into_iter().find(|any| !any.iter().any(grown));
        let Some(missing) = missing else {
            return;
        };
        assert!(
            Instant::now() < deadline,
            "{missing:?} has not happened with {mode:?}: {now:#?}"
        );
        thread::yield_now();
    }
}

/// Waits until a file is being compacted. Gives what the server says then.
fn wait_for_a_compaction(connection: &mut ClientConnection) -> BTreeMap<String, u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = figures(connection);
        if now["ep_compactions_running"] > 0 {
            return now;
        }
        assert!(Instant::now() < deadline, "nothing is compacted: {now:#?}");
        thread::yield_now();
    }
}

/// Every file must be whole while no process has it.
fn check_files(bucket: &Path) {
    let mut check = kedge(&["check"]);
    let (code, stdout, stderr) = run(check.arg(bucket));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
}

/// Returns whether a compaction was interrupted, and left a partial file.
fn has_half_a_compaction(bucket: &Path) -> bool {
    let files = std::fs::read_dir(bucket).expect("a directory");
    let mut names = files.map(|file| file.expect("a file").file_name());
    names.any(|name| name.to_string_lossy().ends_with(".compact"))
}

/// The compactions that rounds have seen.
#[derive(Debug, Default)]
struct Seen {
    finished: u64,
    /// Kills that came while a file was being compacted.
    cut_off: u64,
}

fn round(
    dir: &Path,
    random: &mut Random,
    writers: &mut [Writer],
    published: &mut Published,
    seen: &mut Seen,
    mode: Mode,
) {
    let server = mode.start(dir);
    let mut connection = server.connect();
    published.check(&mut connection);
    for writer in &mut *writers {
        writer.check(&mut connection);
    }
    let before = figures(&mut connection);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let (stop, done) = (&stop, &done);
        for writer in writers {
            let mut connection = server.connect();
            scope.spawn(move || writer.write(&mut connection, stop, done));
        }
        let mut compactor = server.connect();
        scope.spawn(move || compact_all_the_time(&mut compactor, stop));
        wait_for_everything(&mut connection, mode, &before);
        // The moment of the kill: after so many more.
        let writes = done.load(Ordering::Relaxed) + random.below(WRITES_MAX);
        let deadline = Instant::now() + PATIENCE;
        while done.load(Ordering::Relaxed) < writes {
            assert!(Instant::now() < deadline, "{writes} writes are not made");
            thread::yield_now();
        }
        *published = Published::read(&mut connection);
        let last = wait_for_a_compaction(&mut connection);
        server.kill();
        stop.store(true, Ordering::Relaxed);
        seen.finished += last["ep_compactions"];
        eprintln!("{mode:?}: {} acknowledged", done.load(Ordering::Relaxed));
    });
    let bucket = dir.join("buckets/default");
    seen.cut_off += u64::from(has_half_a_compaction(&bucket));
    check_files(&bucket);
}

#[test]
fn persisted_writes_survive_kill_9_during_compaction_eviction_and_applying() {
    let mut random = Random::from_environment("KEDGE_STORAGE_CRASH_SEED");
    let rounds = count_from_environment("KEDGE_STORAGE_CRASH_ROUNDS", ROUNDS_DEFAULT);
    let dir = tempfile::tempdir().expect("a directory");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(number, HABITS, random.next()))
        .collect();
    let (mut published, mut seen) = (Published::default(), Seen::default());
    for number in 0..rounds {
        let mode = Mode::choose(&mut random, number);
        round(
            dir.path(),
            &mut random,
            &mut writers,
            &mut published,
            &mut seen,
            mode,
        );
    }
    let server = Mode::choose(&mut random, rounds).start(dir.path());
    let mut connection = server.connect();
    published.check(&mut connection);
    for writer in &mut writers {
        writer.check(&mut connection);
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    eprintln!("{rounds} rounds, {acknowledged} writes acknowledged, compactions {seen:?}");
    assert!(acknowledged > rounds, "the writers were at work");
    assert!(seen.cut_off > 0, "no kill came while a file was compacted");
}
