//! The users of a cluster: the same on all nodes, whichever node changes them, and whatever happens to nodes and to the
//! coordination store.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Instant;

use kedge::client::{ClientConnection, ClientError, LoginCredentials, ManagementClient};
use kedge_types::Status;

use crate::cluster::{Cluster, at_two_nodes, serve_node};
use crate::cluster_store::{another, another_with};
use crate::process::{PATIENCE, USER, administrator};

const ADA: &str = "/settings/rbac/users/local/ada";
const BOB: &str = "/settings/rbac/users/local/bob";
const FORM: [(&str, &str); 2] = [
    ("password", "lovelace"),
    ("roles", "data_reader[default],data_writer[default]"),
];

fn as_user(cluster: &Cluster, node: usize, user: &str, password: &str) -> ManagementClient {
    let mgmt = cluster.mgmt(node);
    ManagementClient::new(&mgmt.ip().to_string(), mgmt.port(), user, password)
}

/// A logged-in connection to the bucket.
fn connect(
    cluster: &Cluster,
    node: usize,
    user: &str,
    password: &str,
) -> Result<ClientConnection, ClientError> {
    let login = LoginCredentials {
        user: user.to_owned(),
        password: password.to_owned(),
        ..administrator()
    };
    let kv = cluster.kv(node);
    ClientConnection::ready(&kv.ip().to_string(), kv.port(), &login, "default", PATIENCE)
}

/// Returns the code with which management answers a user's login.
fn login_code(cluster: &Cluster, node: usize, user: &str, password: &str) -> u16 {
    let client = as_user(cluster, node, user, password);
    let answer = client.send("GET", "/whoami", &[]);
    answer.expect("an answer").code
}

fn users(cluster: &Cluster, node: usize) -> BTreeSet<String> {
    let listed = cluster.http(node).json("/settings/rbac/users");
    let listed = listed.expect("a list");
    let ids = listed.as_array().expect("a list").iter();
    ids.map(|user| user["id"].as_str().expect("a name").to_owned())
        .collect()
}

/// Waits until something holds. Each look at it takes a request.
fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

/// Returns the documents of all files of a directory.
fn contents(dir: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(dir).expect("a directory");
    let files = files.map(|file| std::fs::read(file.expect("a file").path()).expect("readable"));
    files.flatten().collect()
}

#[test]
fn users_are_the_same_on_all_nodes_once_a_change_is_answered() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    cluster.http(0).expect("PUT", ADA, &FORM).expect("made");
    let mut open: Vec<ClientConnection> = (0..2)
        .map(|node| connect(&cluster, node, "ada", "lovelace").expect("she may log in"))
        .collect();
    for connection in &mut open {
        connection
            .get(b"key")
            .map(drop)
            .or_else(other_node)
            .expect("she may read");
    }

    // A group gives rights, and loses them.
    let group = "/settings/rbac/groups/readers";
    let roles = [("roles", "admin")];
    cluster.http(1).expect("PUT", group, &roles).expect("made");
    let form = [("roles", "data_reader[default]"), ("groups", "readers")];
    cluster.http(0).expect("PUT", ADA, &form).expect("changed");
    for node in 0..2 {
        let listed = as_user(&cluster, node, "ada", "lovelace").json("/settings/rbac/users");
        listed.expect("she manages");
    }
    cluster.http(1).expect("DELETE", group, &[]).expect("gone");
    for node in 0..2 {
        let client = as_user(&cluster, node, "ada", "lovelace");
        let listed = client.send("GET", "/settings/rbac/users", &[]);
        assert_eq!(listed.expect("an answer").code, 403, "node {node}");
    }

    // Her own password.
    let password = [("password", "byron's daughter")];
    as_user(&cluster, 1, "ada", "lovelace")
        .expect("POST", "/controller/changePassword", &password)
        .expect("changed");
    for node in 0..2 {
        assert_eq!(login_code(&cluster, node, "ada", "lovelace"), 401);
        assert_eq!(login_code(&cluster, node, "ada", "byron's daughter"), 200);
    }

    // Connections that are open lose the rights of a user who is removed.
    cluster.http(1).expect("DELETE", ADA, &[]).expect("removed");
    for (node, connection) in open.iter_mut().enumerate() {
        let refused = connection.get(b"key").expect_err("she has no rights");
        assert_eq!(refused.status(), Some(Status::AccessDenied), "{refused}");
        assert_eq!(login_code(&cluster, node, "ada", "byron's daughter"), 401);
    }

    // Nothing but verifiers is stored, and only for the server.
    let store = contents(&dir.path().join("coordinator"));
    for secret in ["lovelace", "byron", crate::process::PASSWORD] {
        let is_there = |bytes: &[u8]| {
            bytes
                .windows(secret.len())
                .any(|it| it == secret.as_bytes())
        };
        assert!(!is_there(&store), "{secret}");
    }
    for node in 0..2 {
        let file = dir.path().join(format!("n_{node}/users.json"));
        let mode = std::fs::metadata(file)
            .expect("it exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    for file in std::fs::read_dir(dir.path().join("coordinator")).expect("a directory") {
        let mode = file
            .expect("a file")
            .metadata()
            .expect("it exists")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0);
    }
}

/// A document may be another node's.
fn other_node(error: ClientError) -> Result<(), ClientError> {
    match error.status() {
        Some(Status::NotMyVbucket) => Ok(()),
        _ => Err(error),
    }
}

#[test]
fn concurrent_user_changes_on_two_nodes_are_all_made() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let names: Vec<String> = (0..16).map(|n| format!("u{n:02}")).collect();
    let nodes = [cluster.http(0), cluster.http(1)];
    at_two_nodes(nodes, &names, |node, name| {
        let path = format!("/settings/rbac/users/local/{name}");
        let form = [("password", "secret-of-a-user")];
        node.expect("PUT", &path, &form).expect("made");
    });
    let all: BTreeSet<String> = names.into_iter().collect();
    for node in 0..2 {
        wait("all users are there", || users(&cluster, node) == all);
    }
}

#[test]
fn users_log_in_and_are_not_changed_while_the_store_is_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    cluster.http(0).expect("PUT", ADA, &FORM).expect("made");
    let (store, away) = (dir.path().join("coordinator"), dir.path().join("away"));
    std::fs::rename(&store, &away).expect("moved away");
    // Otherwise nodes make another one.
    std::fs::write(&store, "no directory").expect("a file");
    for node in 0..2 {
        connect(&cluster, node, "ada", "lovelace").expect("she may log in");
        assert_eq!(login_code(&cluster, node, "ada", "lovelace"), 200);
        let refused = cluster.http(node).send("PUT", BOB, &FORM);
        let refused = refused.expect("an answer");
        let text = String::from_utf8_lossy(&refused.body).into_owned();
        assert_eq!(refused.code, 503, "{text}");
        assert!(text.contains("coordination store"), "{text}");
        let refused = cluster.http(node).send("DELETE", ADA, &[]);
        assert_eq!(refused.expect("an answer").code, 503);
        let password = [("password", "another-password")];
        let own = as_user(&cluster, node, "ada", "lovelace");
        let refused = own.send("POST", "/controller/changePassword", &password);
        assert_eq!(refused.expect("an answer").code, 503);
    }
    // A node that starts meanwhile has its copy.
    cluster.kill(1);
    let starting = Started(serve_node(dir.path(), 1).spawn().expect("it starts"));
    let own = as_user(&cluster, 1, "ada", "lovelace");
    wait("she may log in after a start", || {
        let answer = own.send("GET", "/whoami", &[]);
        answer.is_ok_and(|answer| answer.code == 200)
    });
    let nobody = login_code(&cluster, 1, "bob", "lovelace");
    assert_eq!(nobody, 401);
    std::fs::remove_file(&store).expect("removed");
    std::fs::rename(&away, &store).expect("back");
    for node in 0..2 {
        cluster.wait_status(node, "the store answers", |status| {
            status["coordinator"]["trouble"].is_null()
        });
    }
    wait("users can be changed again", || {
        let made = cluster.http(0).send("PUT", BOB, &FORM);
        made.is_ok_and(|made| made.code == 200)
    });
    for node in 0..2 {
        assert_eq!(login_code(&cluster, node, "bob", "lovelace"), 200);
        assert_eq!(login_code(&cluster, node, "ada", "lovelace"), 200);
    }
    drop(starting);
}

/// A node that nobody waits for.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn answered_user_changes_survive_kill_9_of_the_node_that_made_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    let client = cluster.http(1);
    let (answers, answered) = std::sync::mpsc::channel();
    let changes = thread::spawn(move || {
        for n in 0.. {
            let path = format!("/settings/rbac/users/local/u{n}");
            let form = [("password", "secret-of-a-user")];
            if client.expect("PUT", &path, &form).is_err() {
                return;
            }
            answers.send(format!("u{n}")).expect("somebody listens");
        }
    });
    let mut made: BTreeSet<String> = (0..5)
        .map(|_| answered.recv_timeout(PATIENCE).expect("it is answered"))
        .collect();
    cluster.kill(1);
    changes.join().expect("no panic");
    made.extend(answered.try_iter());
    let found = users(&cluster, 0);
    assert!(found.is_superset(&made), "{made:?}, not {found:?}");
    // The one that was not answered may be made or not.
    assert!(found.len() <= made.len() + 1, "{made:?}, not {found:?}");
    let _again = cluster.serve(dir.path(), 1);
    for name in &made {
        let code = login_code(&cluster, 1, name, "secret-of-a-user");
        assert_eq!(code, 200, "{name}");
    }
    assert_eq!(users(&cluster, 1), users(&cluster, 0));
}

/// A user that was removed came back with a backup of the store.
#[test]
fn restored_store_gets_the_newest_users_back_from_nodes() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    cluster.http(0).expect("PUT", ADA, &FORM).expect("made");
    let store = dir.path().join("coordinator");
    let (backup, away) = (dir.path().join("backup"), dir.path().join("away"));
    std::fs::create_dir(&backup).expect("a directory");
    for file in std::fs::read_dir(&store).expect("a directory") {
        let file = file.expect("a file");
        std::fs::copy(file.path(), backup.join(file.file_name())).expect("a copy");
    }
    cluster.http(1).expect("DELETE", ADA, &[]).expect("removed");
    cluster.http(0).expect("PUT", BOB, &FORM).expect("made");
    std::fs::rename(&store, away).expect("moved away");
    std::fs::rename(&backup, &store).expect("restored");
    let eve = "/settings/rbac/users/local/eve";
    wait("users can be changed again", || {
        let made = cluster.http(1).send("PUT", eve, &FORM);
        made.is_ok_and(|made| made.code == 200)
    });
    for node in 0..2 {
        wait("the newest users are there", || {
            users(&cluster, node).iter().eq(["bob", "eve"])
        });
    }
    // A node that knows only the store.
    let data = dir.path().join("n_2");
    let _waiting = Started(
        another(dir.path(), "n_2", &data)
            .spawn()
            .expect("it starts"),
    );
    wait("it has them, too", || {
        let file = std::fs::read_to_string(data.join("users.json")).unwrap_or_default();
        file.contains("\"bob\"") && file.contains("\"eve\"") && !file.contains("\"ada\"")
    });
}

#[test]
fn node_takes_the_users_of_the_cluster_that_it_is_started_with() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    cluster.http(0).expect("PUT", ADA, &FORM).expect("made");
    let data = dir.path().join("n_2");
    // Its own administrator has another password.
    let mut command = another_with(dir.path(), "n_2", &data, "another-password");
    let waiting = Started(command.spawn().expect("it starts"));
    let (code, _, why) = {
        wait("it waits", || cluster.tool(1, &["add", "n_2"]).0 == Some(0));
        cluster.tool(0, &["add", "n_2"])
    };
    assert_eq!(code, Some(1), "it is a member already: {why}");
    cluster.wait_status(0, "it is a member", |status| {
        status["nodes"][2]["name"] == "n_2" && status["nodes"][2]["applied"] == status["revision"]
    });
    let status = cluster.status(0);
    let port = status["nodes"][2]["mgmtPort"].as_u64().expect("a port");
    let port = u16::try_from(port).expect("a port");
    let code = |user: &str, password: &str| {
        let client = ManagementClient::new("127.0.0.1", port, user, password);
        let answer = client.send("GET", "/whoami", &[]);
        answer.expect("an answer").code
    };
    assert_eq!(code("ada", "lovelace"), 200);
    assert_eq!(code(USER, crate::process::PASSWORD), 200);
    assert_eq!(code(USER, "another-password"), 401);
    // Users that it changes are those of the cluster.
    ManagementClient::new("127.0.0.1", port, USER, crate::process::PASSWORD)
        .expect("PUT", BOB, &FORM)
        .expect("made");
    for node in 0..2 {
        assert_eq!(login_code(&cluster, node, "bob", "lovelace"), 200);
    }
    drop(waiting);
}

#[test]
fn password_given_at_the_start_of_a_member_is_that_of_the_cluster() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(dir.path(), &["--nodes=2"]);
    cluster.kill(1);
    let mut command = serve_node(dir.path(), 1);
    command.args(["--password", "another-password"]);
    let _again = Started(command.spawn().expect("it starts"));
    wait("the other node follows", || {
        login_code(&cluster, 0, USER, "another-password") == 200
    });
    assert_eq!(login_code(&cluster, 0, USER, crate::process::PASSWORD), 401);
}
