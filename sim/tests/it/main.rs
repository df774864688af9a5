//! Histories by seed. `KEDGE_SEED` runs one, `KEDGE_SEEDS` that many.

use kedge_sim::{Plan, Summary, World};

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("KEDGE_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("KEDGE_SEEDS").unwrap_or(default),
    }
}

#[test]
fn what_was_acknowledged_survives_and_nobody_sees_what_is_taken_back() {
    let mut total = Summary::default();
    let seeds = seeds(200);
    let many = seeds.end - seeds.start > 50;
    for seed in seeds {
        let summary = World::new(seed, &Plan::of(seed)).run();
        let summary = summary.unwrap_or_else(|wrong| panic!("{wrong}"));
        total.acknowledged += summary.acknowledged;
        total.unknown += summary.unknown;
        total.kills += summary.kills;
        total.failovers += summary.failovers;
        total.takeovers += summary.takeovers;
        total.rollbacks += summary.rollbacks;
        total.cuts += summary.cuts;
    }
    eprintln!("{total:?}");
    if many {
        // Histories in which nothing happens prove nothing.
        assert!(total.acknowledged > 1_000 && total.unknown > 50);
        assert!(
            total.kills > 50 && total.failovers > 50 && total.rollbacks > 10 && total.cuts > 50
        );
        assert!(total.takeovers > 50);
    }
}
