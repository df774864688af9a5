//! Writes that were acknowledged as persisted survive `kill -9`.
//!
//! Writers store and remove documents at the levels that wait for the disk, and some without waiting, while the
//! process is killed at a random moment; sometimes it is killed again while it recovers. After each restart every
//! document is one of the states that its history allows:
//! * the last state that was acknowledged as persisted, or
//! * one that was asked for after it: acknowledged from memory, or never answered.
//!
//! `KEDGE_CRASH_ROUNDS` is the number of kills (50), `KEDGE_CRASH_SEED` repeats a run's choices.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::histories::{Habits, Published, Writer};
use crate::process::{Server, serve, wait_for};
use crate::random::{Random, count_from_environment};

const WRITERS: usize = 6;
const HABITS: Habits = Habits {
    keys: 24,
    value_bytes_max: 2_000,
    one_read_in: None,
    passing: &[],
};
const ROUNDS_DEFAULT: u64 = 50;

/// Starts a server and kills it while it recovers.
fn kill_in_recovery(dir: &Path, after: Duration) {
    let mut command = serve(dir, &[]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // sleep: the moment of the kill is what the test varies
    thread::sleep(after);
    child.kill().expect("the process is ours");
    wait_for(&mut child);
}

#[test]
fn persisted_writes_survive_kill_9() {
    let mut random = Random::from_environment("KEDGE_CRASH_SEED");
    let rounds = count_from_environment("KEDGE_CRASH_ROUNDS", ROUNDS_DEFAULT);
    let dir = tempfile::tempdir().expect("a directory");
    let mut writers: Vec<Writer> = (0..WRITERS)
        .map(|number| Writer::new(number, HABITS, random.next()))
        .collect();

    let mut published = Published::default();
    for round in 0..rounds {
        if random.below(4) == 0 {
            kill_in_recovery(dir.path(), Duration::from_micros(random.below(30_000)));
        }
        let server = Server::start(dir.path(), &[]);
        let mut connection = server.connect();
        published.check(&mut connection);
        for writer in &mut writers {
            writer.check(&mut connection);
        }
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for writer in &mut writers {
                let mut connection = server.connect();
                let (stop, done) = (&stop, &done);
                scope.spawn(move || writer.write(&mut connection, stop, done));
            }
            // sleep: the moment of the kill is what the test varies
            thread::sleep(Duration::from_micros(20_000 + random.below(330_000)));
            published = Published::read(&mut connection);
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
        eprintln!(
            "round {round}: {} acknowledged",
            done.load(Ordering::Relaxed)
        );
    }

    let server = Server::start(dir.path(), &[]);
    let mut connection = server.connect();
    published.check(&mut connection);
    for writer in &mut writers {
        writer.check(&mut connection);
    }
    let acknowledged: u64 = writers.iter().map(|writer| writer.acknowledged).sum();
    eprintln!("{rounds} rounds, {acknowledged} writes acknowledged");
    assert!(acknowledged > rounds, "the writers were at work");
}
