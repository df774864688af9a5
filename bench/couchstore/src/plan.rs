//! The measured pieces of work, and their order.
//!
//! In a round each site in turn gets new files: files of all sizes are created, and the largest is then updated,
//! compacted and read. Every round does the same with other random keys.

use kedge_bench_common::measure::WorkCost;
use kedge_bench_common::random::Random;
use kedge_bench_common::site::Site;
use kedge_couchstore::{Error, Options, Snapshot, Writer};

use crate::documents::Bodies;

use crate::work::{compact, read, write};

/// Documents of the large file.
pub const DOCUMENTS: u32 = 1_000_000;
/// The number of documents that are looked up in one batch.
pub const MULTI_GET_KEYS: u32 = 1000;

const INSERT: &str = "insert";
/// Updates with a file that is opened for each batch.
const UPDATE: &str = "update";
/// Updates with a file that stays open, so that interior nodes are in memory.
const UPDATE_AGAIN: &str = "update_again";
const COMPACT: &str = "compact";
const OPEN: &str = "open";
const OPEN_TO_APPEND: &str = "open_to_append";
const SCAN_BODIES: &str = "scan_bodies";
const SCAN_METADATA: &str = "scan_metadata";
const GET: &str = "get";
const MULTI_GET: &str = "multi_get";
/// The reads of the compacted file.
const READS: [&str; 6] = [
    OPEN,
    OPEN_TO_APPEND,
    SCAN_BODIES,
    SCAN_METADATA,
    GET,
    MULTI_GET,
];

/// The extent of the measurements.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// The number of rounds.
    pub rounds: u32,
    /// The numbers of inserted documents, with their repetitions in a round.
    inserts: &'static [(u32, u32)],
    /// The numbers of updated documents, with their repetitions in a round.
    updates: &'static [(u32, u32)],
    gets: u32,
    multi_gets: u32,
    opens: u32,
    scans: u32,
}

impl Effort {
    /// The effort for published figures.
    pub const FULL: Self = Self {
        rounds: 7,
        inserts: &[
            (1, 20),
            (10, 20),
            (100, 20),
            (1000, 20),
            (10_000, 10),
            (100_000, 3),
            (DOCUMENTS, 1),
        ],
        updates: &[
            (1, 20),
            (10, 20),
            (100, 10),
            (1000, 5),
            (10_000, 2),
            (100_000, 1),
        ],
        gets: 200_000,
        multi_gets: 100,
        opens: 500,
        scans: 2,
    };

    /// The effort for a short run.
    pub const QUICK: Self = Self {
        rounds: 2,
        inserts: &[
            (1, 10),
            (10, 10),
            (100, 10),
            (1000, 10),
            (10_000, 5),
            (100_000, 1),
            (DOCUMENTS, 1),
        ],
        gets: 50_000,
        multi_gets: 50,
        opens: 100,
        scans: 1,
        ..Self::FULL
    };
}

/// The cost of one piece of work.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The piece of work.
    pub work: &'static str,
    /// The site.
    pub site: &'static str,
    /// The number of documents of the batch, or 0 if there is none.
    pub size: u32,
    /// The round, from 0.
    pub round: u32,
    /// The number by which `taken` is divided.
    pub items: u64,
    /// The cost.
    pub taken: WorkCost,
}

struct Round<'a> {
    site: &'a Site,
    effort: Effort,
    bodies: &'a Bodies,
    number: u32,
    random: Random,
    filter: &'a str,
    samples: &'a mut Vec<Sample>,
}

/// Runs all works whose name contains `filter`, and their prerequisites, on all sites in all rounds; `tell` is called
/// for each round and site.
///
/// # Errors
/// The errors of the library.
pub fn run(
    sites: &[Site],
    effort: Effort,
    filter: &str,
    tell: impl Fn(u32, &str),
) -> Result<Vec<Sample>, Error> {
    let bodies = Bodies::new(DOCUMENTS as usize);
    let mut samples = Vec::new();
    for number in 0..effort.rounds {
        for site in sites {
            tell(number, site.name);
            let round = Round {
                site,
                effort,
                bodies: &bodies,
                number,
                random: Random::new(number.into()),
                filter,
                samples: &mut samples,
            };
            round.run()?;
        }
    }
    Ok(samples)
}

impl Round<'_> {
    fn wants(&self, works: &[&str]) -> bool {
        works.iter().any(|work| work.contains(self.filter))
    }

    fn add(&mut self, work: &'static str, size: u32, items: u64, taken: WorkCost) {
        if !self.wants(&[work]) {
            return;
        }
        self.samples.push(Sample {
            work,
            site: self.site.name,
            size,
            round: self.number,
            items,
            taken,
        });
    }

    fn run(mut self) -> Result<(), Error> {
        if self.wants(&[INSERT]) {
            self.inserts()?;
        }
        let site = self.site;
        let (path, taken) = write::insert(site, "large.couch.1", DOCUMENTS, self.bodies)?;
        self.add(INSERT, DOCUMENTS, DOCUMENTS.into(), taken);
        if self.wants(&[UPDATE, UPDATE_AGAIN, COMPACT]) {
            self.updates(&path)?;
        }
        if self.wants(&[COMPACT]) || self.wants(&READS) {
            let (target, documents, taken) = compact::compact(site, &path)?;
            self.add(COMPACT, 0, documents, taken);
            self.reads(&target)?;
            site.remove(&target);
        }
        site.remove(&path);
        Ok(())
    }

    fn inserts(&mut self) -> Result<(), Error> {
        for (size, repeats) in self.effort.inserts {
            // The largest is created where it is needed later.
            for _ in 0..if *size == DOCUMENTS { 0 } else { *repeats } {
                let (path, taken) = write::insert(self.site, "small.couch.1", *size, self.bodies)?;
                self.add(INSERT, *size, (*size).into(), taken);
                self.site.remove(&path);
            }
        }
        Ok(())
    }

    fn updates(&mut self, path: &std::path::Path) -> Result<(), Error> {
        let (site, bodies) = (self.site, self.bodies);
        for (size, repeats) in self.effort.updates {
            for _ in 0..*repeats {
                let numbers = self.random.distinct(*size as usize, DOCUMENTS as usize);
                let taken = write::reopen_and_update(site, path, numbers, bodies)?;
                self.add(UPDATE, *size, (*size).into(), taken);
            }
        }
        let mut writer = Writer::open(&*site.disk, path, &Options::default())?;
        // The largest goes first, so that the interior nodes are in memory.
        for (turn, (size, repeats)) in self.effort.updates.iter().rev().enumerate() {
            for repeat in 0..*repeats + u32::from(turn == 0) {
                let numbers = self.random.distinct(*size as usize, DOCUMENTS as usize);
                let taken = write::update(site, &mut writer, numbers, bodies)?;
                if turn > 0 || repeat > 0 {
                    self.add(UPDATE_AGAIN, *size, (*size).into(), taken);
                }
            }
        }
        Ok(())
    }

    fn reads(&mut self, path: &std::path::Path) -> Result<(), Error> {
        let (site, effort) = (self.site, self.effort);
        if self.wants(&[OPEN, OPEN_TO_APPEND]) {
            let taken = read::open_and_close(site, path, effort.opens)?;
            self.add(OPEN, 0, effort.opens.into(), taken);
            let taken = read::open_to_append_and_close(site, path, effort.opens)?;
            self.add(OPEN_TO_APPEND, 0, effort.opens.into(), taken);
        }
        let snapshot = Snapshot::open(&*site.disk, path, &Options::default())?;
        for (work, with_bodies) in [(SCAN_BODIES, true), (SCAN_METADATA, false)] {
            for _ in 0..if self.wants(&[work]) { effort.scans } else { 0 } {
                let (documents, taken) = read::scan(site, &snapshot, with_bodies)?;
                self.add(work, 0, documents, taken);
            }
        }
        if self.wants(&[GET]) {
            let gets = (effort.gets, DOCUMENTS);
            // The first time loads the upper levels of the tree into memory.
            read::gets(site, &snapshot, gets, self.random.next())?;
            let taken = read::gets(site, &snapshot, gets, self.random.next())?;
            self.add(GET, 0, effort.gets.into(), taken);
        }
        for _ in 0..if self.wants(&[MULTI_GET]) {
            effort.multi_gets
        } else {
            0
        } {
            let keys = (MULTI_GET_KEYS, DOCUMENTS);
            let taken = read::multi_get(site, &snapshot, keys, self.random.next())?;
            self.add(MULTI_GET, MULTI_GET_KEYS, MULTI_GET_KEYS.into(), taken);
        }
        Ok(())
    }
}
