//! Histories by seed. `KEDGE_SEED` runs one, `KEDGE_SEEDS` that many, from `KEDGE_FIRST_SEED` on. `KEDGE_TRACE=1` prints what
//! happens, a line for each event.

use kedge_sim::{HistoryPlan, Summary, World};
use std::cell::RefCell;
use std::num::NonZero;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

fn seeds(default: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("KEDGE_SEED").or(number("KEDGE_FIRST_SEED"));
    let count = match number("KEDGE_SEED") {
        Some(_) => 1,
        None => number("KEDGE_SEEDS").unwrap_or(default),
    };
    let first = first.unwrap_or(0);
    first..first + count
}

/// Runs histories on all processors, and returns the sum of their figures.
fn run_all(seeds: Range<u64>) -> Result<Summary, String> {
    let next = AtomicU64::new(seeds.start);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let work = || {
        if std::env::var_os("KEDGE_TRACE").is_some() {
            kedge_sim::trace(|line| eprintln!("{line}"));
        }
        let mut total = Summary::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok::<_, String>(total);
            }
            if seed.is_multiple_of(1_000) {
                eprintln!("seed {seed}");
            }
            let summary = World::new(seed, &HistoryPlan::of(seed)).run();
            // The others end as well.
            total += summary.inspect_err(|_| next.store(seeds.end, Ordering::Relaxed))?;
        }
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut total = Summary::default();
        for thread in running {
            total += thread.join().expect("it returns its error")?;
        }
        Ok(total)
    })
}

#[test]
fn acknowledged_writes_survive_and_rolled_back_values_are_never_seen() {
    let seeds = seeds(200);
    let many = seeds.end - seeds.start > 50;
    let total = run_all(seeds).unwrap_or_else(|wrong| panic!("{wrong}"));
    eprintln!("{total:?}");
    if many {
        // Histories in which nothing happens prove nothing.
        assert!(total.acknowledged > 1_000 && total.unknown > 50);
        assert!(
            total.kills > 50 && total.failovers > 50 && total.rollbacks > 10 && total.cuts > 50
        );
        assert!(total.takeovers > 50 && total.resizes > 50 && total.rebalances > 50);
        assert!(total.returns > 50 && total.joins > 50 && total.restores > 5);
        assert!(total.lost_leases > 50);
        assert!(total.pauses > 50 && total.watchdogs > 20);
        assert!(total.outages > 50 && total.promises > 50 && total.lost_disks > 5);
        assert!(total.drains > 5 && total.graceful_failovers > 15 && total.empty_returns > 20);
        assert!(total.additions > 20 && total.removals > 20 && total.joint_takeovers > 5);
        assert!(total.evictions > 300 && total.clocks_set > 50 && total.slow_disks > 50);
    }
}

#[test]
fn trace_reports_every_event() {
    let lines = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&lines);
    kedge_sim::trace(move |line| heard.borrow_mut().push(line.to_owned()));
    let mut total = [0; 8];
    for seed in 0..48 {
        lines.borrow_mut().clear();
        let summary = World::new(seed, &HistoryPlan::of(seed)).run();
        let summary = summary.unwrap_or_else(|wrong| panic!("{wrong}"));
        let lines = lines.borrow();
        let count = |what: &str| {
            let counts = lines.iter().map(|line| line.matches(what).count());
            counts.sum::<usize>() as u64
        };
        let told = [
            count("acknowledged"),
            count("is killed") + count("loses its power"),
            count("is failed over"),
            count("has taken vBucket"),
            count("goes back to"),
            count("is back:"),
            count("is not known"),
            count("stream from"),
        ];
        let Summary {
            acknowledged,
            unknown,
            kills,
            failovers,
            takeovers,
            rollbacks,
            returns,
            ..
        } = summary;
        let is = [
            acknowledged,
            kills,
            failovers,
            takeovers,
            rollbacks,
            returns,
        ];
        assert_eq!(told[..6], is, "seed {seed}");
        // Of processes that died nobody hears.
        assert!(told[6] <= unknown, "seed {seed}");
        // A rebalance may leave a vBucket without replicas early.
        assert!(count("adopts map") > 0);
        for (total, told) in total.iter_mut().zip(told) {
            *total += told;
        }
    }
    assert!(total.iter().all(|count| *count > 0), "{total:?}");
}
