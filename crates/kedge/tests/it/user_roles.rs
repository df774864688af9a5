//! Roles that `kedge user set` gives: the rights of the user, and refused changes.

use kedge::client::{ClientConnection, ClientError, LoginCredentials};
use kedge_types::Status;

use crate::process::{PASSWORD, PATIENCE, Server, USER, administrator, kedge, run};

const NEW_PASSWORD: &str = "christmas";

/// Runs `kedge user` as the administrator.
fn try_user(server: &Server, words: &[&str]) -> (Option<i32>, String, String) {
    run_as(server, USER, PASSWORD, &[&["user"], words].concat())
}

/// Runs `kedge user` as the administrator; it must succeed.
fn user(server: &Server, words: &[&str]) -> String {
    let (code, stdout, stderr) = try_user(server, words);
    assert_eq!(code, Some(0), "{words:?}: {stdout}{stderr}");
    stdout
}

fn run_as(
    server: &Server,
    user: &str,
    password: &str,
    words: &[&str],
) -> (Option<i32>, String, String) {
    let url = format!("couchbase://{}/default", server.kv);
    run(kedge(words).args(["-U", &url, "-u", user, "-P", password]))
}

/// Starts a server with a document, and with a user that has no roles.
fn start() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start(dir.path(), &[]);
    server.connect().set(b"k", b"v", None).expect("a write");
    let password = format!("--new-password={NEW_PASSWORD}");
    user(
        &server,
        &["add", "carol", "--display-name=Carol", &password],
    );
    (dir, server)
}

fn connect_as_carol(server: &Server) -> Result<ClientConnection, ClientError> {
    let login = LoginCredentials {
        user: "carol".to_owned(),
        password: NEW_PASSWORD.to_owned(),
        ..administrator()
    };
    let host = server.kv.ip().to_string();
    ClientConnection::ready(&host, server.kv.port(), &login, "default", PATIENCE)
}

/// Returns the roles of carol in the table and in JSON, after a check that both are the same.
fn roles(server: &Server) -> String {
    let table = user(server, &["list"]);
    let row = table.lines().find(|line| line.starts_with("carol"));
    let row = row.expect("a row");
    assert!(row.contains("Carol"), "the display name stays: {table}");
    let json = user(server, &["list", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let users = json.as_array().expect("a list");
    let carol = users.iter().find(|user| user["id"] == "carol");
    let listed = carol.expect("an entry")["roles"].as_array();
    let names: Vec<&str> = listed
        .expect("roles")
        .iter()
        .map(|role| role["role"].as_str().expect("a name"))
        .collect();
    // No column of the table has two blanks in a row.
    let cells: Vec<&str> = row.split("  ").filter(|cell| !cell.is_empty()).collect();
    let shown = cells.last().expect("a cell").trim();
    let shown = if names.is_empty() { "" } else { shown };
    let of_table = shown.split(", ").map(|role| role.split('[').next());
    let of_table: Vec<&str> = of_table.flatten().filter(|name| !name.is_empty()).collect();
    assert_eq!(of_table, names, "{table}");
    shown.to_owned()
}

/// Checks the rights of a connection to read and to write.
fn check_rights(connection: &mut ClientConnection, reads: bool, writes: bool) {
    let status = |result: Result<(), ClientError>| {
        let refusal = |error: ClientError| error.status().expect("a refusal");
        result.map_err(refusal).err()
    };
    let expected = |may: bool| (!may).then_some(Status::AccessDenied);
    let found = connection.get(b"k").map(drop);
    assert_eq!(status(found), expected(reads), "a read");
    let stored = connection.set(b"k", b"v", None).map(drop);
    assert_eq!(status(stored), expected(writes), "a write");
}

/// Asserts that a command is refused with a text, and that carol keeps her roles.
fn check_refused(server: &Server, words: &[&str], expected: &str) {
    let before = roles(server);
    let (code, stdout, stderr) = try_user(server, words);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{words:?}");
    assert!(stderr.contains(expected), "{words:?}: {stderr}");
    assert_eq!(roles(server), before, "{words:?}");
}

#[test]
fn user_set_replaces_roles_and_open_connections_have_the_new_rights() {
    let (_dir, server) = start();
    assert_eq!(roles(&server), "");
    let refused = connect_as_carol(&server).map(drop);
    let refused = refused.expect_err("no right in the bucket");
    assert_eq!(refused.status(), Some(Status::AccessDenied), "{refused}");
    user(&server, &["set", "carol", "--roles=data_reader[default]"]);
    assert_eq!(roles(&server), "data_reader[default]");
    let mut connection = connect_as_carol(&server).expect("a right in the bucket");
    check_rights(&mut connection, true, false);
    for (given, reads, writes) in [
        ("data_writer[default]", false, true),
        ("data_reader[*], data_writer[default]", true, true),
        ("data_reader[default]", true, false),
        ("bucket_full_access[default]", true, true),
        // Neither reads nor writes documents.
        ("cluster_admin", false, false),
    ] {
        user(&server, &["set", "carol", "--roles", given]);
        assert_eq!(roles(&server), given);
        check_rights(&mut connection, reads, writes);
    }
    let manage = |words: &[&str]| run_as(&server, "carol", NEW_PASSWORD, words).0;
    assert_eq!(manage(&["bucket", "list"]), Some(0));
    assert_eq!(manage(&["user", "list"]), Some(1));
    user(&server, &["set", "carol", "--roles=security_admin"]);
    assert_eq!(manage(&["user", "list"]), Some(0));
    // No roles at all.
    user(&server, &["set", "carol", "--roles="]);
    assert_eq!(roles(&server), "");
    assert_eq!(manage(&["user", "list"]), Some(1));
    check_rights(&mut connection, false, false);
}

#[test]
fn user_set_changes_roles_and_groups_separately() {
    let (_dir, server) = start();
    user(
        &server,
        &["group", "set", "readers", "--roles=data_reader[default]"],
    );
    user(&server, &["set", "carol", "--groups=readers"]);
    let mut connection = connect_as_carol(&server).expect("a right in the bucket");
    check_rights(&mut connection, true, false);
    user(&server, &["set", "carol", "--roles=data_writer[default]"]);
    check_rights(&mut connection, true, true);
    // The group changes, and the own roles stay.
    user(&server, &["group", "set", "readers", "--roles="]);
    check_rights(&mut connection, false, true);
    user(
        &server,
        &["group", "set", "readers", "--roles=data_reader[default]"],
    );
    user(&server, &["set", "carol", "--groups="]);
    check_rights(&mut connection, false, true);
    assert_eq!(roles(&server), "data_writer[default]");
}

#[test]
fn user_set_refuses_what_does_not_exist_and_changes_nothing() {
    let (_dir, server) = start();
    user(&server, &["set", "carol", "--roles=data_reader[default]"]);
    for (roles, expected) in [
        ("no_such_role", "undefined: [no_such_role]"),
        (
            "data_writer[default],data_reader[other]",
            "undefined: [data_reader[other]]",
        ),
        (
            "data_reader[default:no-scope]",
            "undefined: [data_reader[default:no-scope]]",
        ),
        (
            "data_reader[default:_default:none]",
            "undefined: [data_reader[default:_default:none]]",
        ),
        ("data_reader", "it needs a bucket"),
        ("ro_admin[default]", "it takes no bucket"),
        ("bucket_admin[default:_default]", "it takes no scope"),
    ] {
        check_refused(&server, &["set", "carol", "--roles", roles], expected);
        let group = ["group", "set", "readers", "--roles", roles];
        check_refused(&server, &group, expected);
    }
    let groups = user(&server, &["group", "list"]);
    assert!(!groups.contains("readers"), "{groups}");
    for (words, expected) in [
        (
            &["set", "carol", "--groups=no-group"][..],
            "unknown group \"no-group\"",
        ),
        (
            &["set", "nobody", "--roles=admin"],
            "there is no user \"nobody\"",
        ),
        (
            &["set", USER, "--roles=ro_admin"],
            "the last user with the role admin must stay",
        ),
    ] {
        check_refused(&server, words, expected);
    }
}

/// `user set` and `user passwd` reported that there was no such user. A node of a cluster has the user
/// `kedge.cluster`.
#[test]
fn reserved_names_are_refused_as_reserved() {
    let (_dir, server) = start();
    let password = format!("--new-password={NEW_PASSWORD}");
    for name in ["kedge.cluster", "kedge.x"] {
        for words in [
            &["add", name, &password][..],
            &["set", name, "--roles=admin"],
            &["passwd", name, &password],
            &["remove", name],
            &["group", "set", name, "--roles=admin"],
        ] {
            check_refused(&server, words, "reserved");
        }
    }
}
