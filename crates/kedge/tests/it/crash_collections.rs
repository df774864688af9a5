//! Collections that were made or dropped are so after `kill -9`, with what was persisted in them.
//!
//! They come and go, and documents are written into them at a level that waits for the disk. Another connection writes into
//! the default collection, and the process is killed when a number of these writes, chosen at random, is acknowledged: so at
//! any point of what the first one does. `KEDGE_COLLECTIONS_CRASH_ROUNDS` is the number of kills (4),
//! `KEDGE_COLLECTIONS_CRASH_SEED` repeats a run's choices.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::thread;
use std::time::Instant;

use kedge::client::{ClientConnection, ClientError};
use kedge_protocol::binary::Feature;
use kedge_types::{DurabilityLevel, encode_leb128};
use serde_json::Value;

use crate::process::{PASSWORD, PATIENCE, Server, USER, kedge, run};
use crate::random::{Random, count_from_environment};

/// The largest number of acknowledged concurrent writes before a kill.
const WRITES_MAX: u64 = 200;

/// The known collections of the default scope.
#[derive(Default)]
struct Known {
    /// Id, and how many documents were acknowledged.
    there: BTreeMap<String, (u32, u32)>,
    gone: BTreeSet<String>,
    /// Names of commands that nobody answered.
    open: BTreeSet<String>,
    made: u32,
    /// Documents of the default collection that were acknowledged.
    alongside: u32,
}

/// `kedge collection`; `None` when it failed.
fn collection(server: &Server, args: &[&str]) -> Option<String> {
    let mut command = kedge(&["collection"]);
    let url = format!("http://{}/default", server.mgmt);
    command
        .args(args)
        .args(["-U", &url, "-u", USER, "-P", PASSWORD]);
    let (code, stdout, _) = run(&mut command);
    (code == Some(0)).then_some(stdout)
}

/// Names and ids of the collections of the default scope.
fn list(server: &Server) -> Option<BTreeMap<String, u32>> {
    let listed: Value = serde_json::from_str(&collection(server, &["list", "--json"])?).ok()?;
    let scopes = listed["scopes"].as_array()?;
    let default = scopes.iter().find(|scope| scope["name"] == "_default")?;
    let each = |it: &Value| {
        let id = u32::from_str_radix(it["uid"].as_str()?, 16).ok()?;
        Some((it["name"].as_str()?.to_owned(), id))
    };
    let all = default["collections"].as_array()?.iter().map(each);
    all.collect()
}

fn key(id: u32, number: u32) -> Vec<u8> {
    let (prefix, len) = encode_leb128(id);
    [&prefix[..len], format!("key-{number}").as_bytes()].concat()
}

/// Writes a document at a level that waits for the disk.
fn write(connection: &mut ClientConnection, id: u32, number: u32) -> Result<(), ClientError> {
    let level = Some(DurabilityLevel::PersistToMajority);
    connection.set(&key(id, number), b"value", level).map(drop)
}

fn connect(server: &Server) -> ClientConnection {
    let mut connection = server.connect();
    connection.hello(&[Feature::Collections]).expect("HELLO");
    connection
}

/// Checks the state after a restart.
fn check(server: &Server, known: &mut Known) {
    let listed = list(server).expect("a list");
    for name in std::mem::take(&mut known.open) {
        match listed.get(&name) {
            Some(id) => drop(known.there.entry(name).or_insert((*id, 0))),
            None => {
                known.there.remove(&name);
                known.gone.insert(name);
            }
        }
    }
    let mut connection = connect(server);
    let default = ("_default".to_owned(), (0, known.alongside));
    for (name, (id, documents)) in known.there.iter().chain([(&default.0, &default.1)]) {
        assert_eq!(listed.get(name), Some(id), "{name} was made");
        for number in 0..*documents {
            let found = connection.get(&key(*id, number)).expect("an answer");
            assert!(found.is_some(), "document {number} of {name}");
        }
    }
    for name in &known.gone {
        assert!(!listed.contains_key(name), "{name} was dropped");
    }
}

/// One command. False when the server is gone.
fn step(
    server: &Server,
    connection: &mut ClientConnection,
    known: &mut Known,
    choice: u64,
) -> bool {
    let any = known.there.keys().next_back().cloned();
    match (choice, any) {
        (0..=1, _) | (_, None) if known.there.len() < 4 => {
            known.made += 1;
            let name = format!("c{}", known.made);
            let made = collection(server, &["create", &format!("_default.{name}")]);
            let id = made.and_then(|_| list(server)?.get(&name).copied());
            match id {
                Some(id) => drop(known.there.insert(name, (id, 0))),
                None => drop(known.open.insert(name)),
            }
            id.is_some()
        }
        (2, Some(name)) => {
            let done =
                collection(server, &["drop", "--yes", &format!("_default.{name}")]).is_some();
            if done {
                known.there.remove(&name);
                known.gone.insert(name);
            } else {
                known.open.insert(name);
            }
            done
        }
        (_, Some(name)) => {
            let (id, documents) = known.there.get_mut(&name).expect("it is there");
            for _ in 0..5 {
                if write(connection, *id, *documents).is_err() {
                    return false;
                }
                *documents += 1;
            }
            true
        }
        (_, None) => true,
    }
}

fn check_files(dir: &Path) {
    let (code, stdout, stderr) = run(kedge(&["check"]).arg(dir.join("buckets/default")));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
}

#[test]
fn collections_survive_kill_9() {
    let mut random = Random::from_environment("KEDGE_COLLECTIONS_CRASH_SEED");
    let rounds = count_from_environment("KEDGE_COLLECTIONS_CRASH_ROUNDS", 4);
    let dir = tempfile::tempdir().expect("a directory");
    let args = ["--apply-max-lag=10ms"];
    let mut known = Known::default();
    for _ in 0..rounds {
        let server = Server::start(dir.path(), &args);
        check(&server, &mut known);
        let mut connection = connect(&server);
        // Something has happened before the moment comes.
        for choice in [0, 3, 0, 3, 2, 0, 3] {
            assert!(step(&server, &mut connection, &mut known, choice));
        }
        let mut alongside = connect(&server);
        let (first, count) = (known.alongside, 1 + random.below(WRITES_MAX) as u32);
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in first..first + count {
                    write(&mut alongside, 0, number).expect("it runs until the kill");
                }
                server.signal(rustix::process::Signal::KILL);
            });
            while step(&server, &mut connection, &mut known, random.below(5)) {}
        });
        known.alongside += count;
        server.wait();
        check_files(dir.path());
    }
    let server = Server::start(dir.path(), &args);
    check(&server, &mut known);
    for name in known.there.keys() {
        assert!(collection(&server, &["drop", "--yes", &format!("_default.{name}")]).is_some());
    }
    let mut connection = connect(&server);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = connection.stat("").expect("statistics");
        if stats.contains(&("curr_items".to_owned(), known.alongside.to_string())) {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "documents of dropped collections stay"
        );
        thread::yield_now();
    }
}
