//! Users and groups outlive `kill -9` in the middle of being changed.
//!
//! `KEDGE_USERS_CRASH_ROUNDS` is the number of kills (8).

use std::collections::BTreeMap;
use std::sync::mpsc;

use kedge::client::ManagementClient;
use serde_json::Value;

use crate::process::{PASSWORD, PATIENCE, Server, USER};
use crate::random::count_from_environment;

/// The number of names of users, and of groups, that are changed.
const NAMES: u64 = 4;
const ROLES: [&str; 3] = [
    "data_reader[default]",
    "data_writer[default]",
    "bucket_admin[default]",
];

/// A user or group, by the path of what changes it.
type Name = String;
/// The roles of all that there are, beside the administrator.
type Model = BTreeMap<Name, String>;

/// A change: whom, and the roles, or that it goes.
type Change = (Name, Option<&'static str>);

fn user(number: u64) -> Name {
    format!("/settings/rbac/users/local/u{number}")
}

fn group(number: u64) -> Name {
    format!("/settings/rbac/groups/g{number}")
}

fn apply(model: &mut Model, (name, roles): &Change) {
    match roles {
        Some(roles) => drop(model.insert(name.clone(), (*roles).to_owned())),
        None => drop(model.remove(name)),
    }
}

fn send(client: &ManagementClient, (name, roles): &Change) -> Result<(), String> {
    let sent = match roles {
        Some(roles) => client.expect("PUT", name, &[("roles", roles)]),
        None => client.expect("DELETE", name, &[]),
    };
    sent.map(drop).map_err(|error| error.to_string())
}

/// The roles of one user or group as management shows them.
fn roles_of(shown: &Value) -> String {
    let roles = shown["roles"].as_array().expect("a list of roles").iter();
    let roles = roles.map(|role| {
        let text = |field: &str| role[field].as_str().expect("a name").to_owned();
        format!("{}[{}]", text("role"), text("bucket_name"))
    });
    roles.collect::<Vec<_>>().join(",")
}

fn there(client: &ManagementClient) -> Model {
    let list = |path: &str, place: &str| {
        let shown = client.json(path).expect("a list");
        let named = shown.as_array().expect("a list").iter().map(|it| {
            let id = it["id"].as_str().expect("a name");
            (id, it)
        });
        // The administrator was there first.
        let others = named.filter(|(id, _)| *id != USER);
        let others = others.map(|(id, it)| (format!("{place}/{id}"), roles_of(it)));
        others.collect::<Model>()
    };
    let mut all = list("/settings/rbac/users", "/settings/rbac/users/local");
    all.extend(list("/settings/rbac/groups", "/settings/rbac/groups"));
    all
}

/// Each round changes users and groups one after the other, and kills the process at the answer to one of them, while the
/// next is being made. What was answered holds after the next start; the one that was not may hold or not. A file that is
/// not whole would keep the server from starting.
#[test]
fn acknowledged_user_changes_survive_kill_9() {
    let rounds = count_from_environment("KEDGE_USERS_CRASH_ROUNDS", 8);
    let dir = tempfile::tempdir().expect("a directory");
    let mut random = kedge_disk::Rng::new(kedge_disk::seed(7));
    let mut model = Model::new();
    // A password costs time, so each user gets it once.
    let server = Server::start(dir.path(), &["--vbuckets=4"]);
    let http = |server: &Server| {
        let mgmt = server.mgmt;
        ManagementClient::new(&mgmt.ip().to_string(), mgmt.port(), USER, PASSWORD)
    };
    for number in 0..NAMES {
        let form = [("password", "secret"), ("roles", ROLES[0])];
        http(&server)
            .expect("PUT", &user(number), &form)
            .expect("it is made");
        model.insert(user(number), ROLES[0].to_owned());
    }
    server.kill();
    let mut unanswered: Option<Change> = None;
    for round in 0..rounds {
        let server = Server::start(dir.path(), &["--vbuckets=4"]);
        let found = there(&http(&server));
        if let Some(change) = unanswered.take()
            && found != model
        {
            apply(&mut model, &change);
        }
        assert_eq!(found, model, "round {round}");
        let file = std::fs::read(dir.path().join("users.json")).expect("the file of users");
        serde_json::from_slice::<Value>(&file).expect("it is whole");

        let kill_at = 1 + random.below(40);
        let seed = random.next();
        let (answers, answered) = mpsc::channel();
        let client = http(&server);
        let mut groups: Vec<bool> = (0..NAMES)
            .map(|number| model.contains_key(&group(number)))
            .collect();
        let changes = std::thread::spawn(move || {
            let mut random = kedge_disk::Rng::new(seed);
            loop {
                let number = random.below(NAMES);
                let roles = ROLES[random.below(3) as usize];
                let is_there = &mut groups[number as usize];
                let change = match random.below(3) {
                    0 => (user(number), Some(roles)),
                    1 if *is_there => {
                        *is_there = false;
                        (group(number), None)
                    }
                    _ => {
                        *is_there = true;
                        (group(number), Some(roles))
                    }
                };
                match send(&client, &change) {
                    Ok(()) => answers.send(change).expect("somebody listens"),
                    // The process is gone.
                    Err(_) => return change,
                }
            }
        });
        for _ in 0..kill_at {
            let change = answered.recv_timeout(PATIENCE).expect("it is answered");
            apply(&mut model, &change);
        }
        server.kill();
        unanswered = Some(changes.join().expect("changes do not panic"));
        for change in answered.try_iter() {
            apply(&mut model, &change);
        }
    }
    let server = Server::start(dir.path(), &["--vbuckets=4"]);
    let found = there(&http(&server));
    let maybe = {
        let mut other = model.clone();
        apply(&mut other, &unanswered.expect("each round leaves one"));
        other
    };
    assert!(found == model || found == maybe, "{found:?} {model:?}");
}
