//! Who may do what, and who decides it.

use super::Server;
use super::client::Client;

const USERS: &str = "/settings/rbac/users";

fn put(server: &Server, user: &str, form: &str) -> super::Reply {
    server
        .connect()
        .request("PUT", &format!("{USERS}/local/{user}"), form)
}

#[test]
fn a_user_from_its_creation_to_its_end() {
    let server = Server::start();
    put(
        &server,
        "ada",
        "name=Ada+L.&password=love%20lace&roles=data_reader[default],bucket_admin[b]&groups=",
    )
    .is(200, "\"\"");
    let ada = server.get(&format!("{USERS}/local/ada")).json();
    assert_eq!(ada["id"], "ada");
    assert_eq!(ada["domain"], "local");
    assert_eq!(ada["name"], "Ada L.");
    assert_eq!(ada["groups"], serde_json::json!([]));
    assert_eq!(ada["external_groups"], serde_json::json!([]));
    assert!(
        ada["password_change_date"]
            .as_str()
            .unwrap()
            .ends_with(".000Z")
    );
    assert_eq!(
        ada["roles"][0],
        serde_json::json!({"role": "data_reader", "bucket_name": "default", "origins": [{"type": "user"}]})
    );
    for path in [USERS.to_owned(), format!("{USERS}/local")] {
        let list = server.get(&path).json();
        let ids: Vec<&str> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|user| user["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["ada", "root"]);
    }
    server.get(&format!("{USERS}/external")).is(200, "[]");

    // What is left out stays.
    put(&server, "ada", "roles=ro_admin").is(200, "\"\"");
    let whoami = server
        .connect_as("ada", "love lace")
        .request("GET", "/whoami", "")
        .json();
    assert_eq!(whoami["name"], "Ada L.");
    assert_eq!(whoami["roles"], serde_json::json!([{"role": "ro_admin"}]));

    let mut ada = server.connect_as("ada", "love lace");
    ada.request("POST", "/controller/changePassword", "password=byron")
        .is(200, "");
    assert_eq!(ada.request("GET", "/whoami", "").status, 401);
    assert_eq!(
        server
            .connect_as("ada", "byron")
            .request("GET", "/whoami", "")
            .status,
        200
    );

    let mut root = server.connect();
    root.request("DELETE", &format!("{USERS}/local/ada"), "")
        .is(200, "\"\"");
    root.request("DELETE", &format!("{USERS}/local/ada"), "")
        .is(404, "\"Unknown user.\"");
    root.request("GET", &format!("{USERS}/local/ada"), "")
        .is(404, "\"Unknown user.\"");
    assert_eq!(
        server
            .connect_as("ada", "byron")
            .request("GET", "/whoami", "")
            .status,
        401
    );
}

#[test]
fn wrong_users_are_refused_by_field() {
    let server = Server::start();
    // (user, form, field, part of what is said)
    for (user, form, field, says) in [
        ("ada", "roles=admin", "password", "empty"),
        ("ada", "password=&roles=admin", "password", "empty"),
        ("ada", "password=x&roles=king", "roles", "king"),
        ("ada", "password=x&roles=data_reader", "roles", "bucket"),
        ("ada", "password=x&groups=g", "groups", "not supported"),
        ("a%3Ab", "password=x", "_", "name"),
        ("root", "roles=ro_admin", "_", "last user"),
    ] {
        let reply = put(&server, user, form);
        assert_eq!(reply.status, 400, "{form}: {reply:?}");
        let errors = &reply.json()["errors"];
        assert!(
            errors[field].as_str().unwrap_or_default().contains(says),
            "{form}: {errors}"
        );
    }
    let mut root = server.connect();
    assert_eq!(
        root.request("DELETE", &format!("{USERS}/local/root"), "")
            .status,
        400
    );
    assert_eq!(
        root.request("PUT", &format!("{USERS}/external/x"), "roles=admin")
            .status,
        400
    );
    assert_eq!(
        root.request("PUT", &format!("{USERS}/moon/x"), "roles=admin")
            .status,
        404
    );
    assert_eq!(
        root.request("POST", "/controller/changePassword", "password=")
            .status,
        400
    );
}

#[test]
fn roles_and_groups() {
    let server = Server::start();
    let roles = server.get("/settings/rbac/roles").json();
    assert!(
        roles
            .as_array()
            .unwrap()
            .iter()
            .any(|role| role["role"] == "admin"),
        "{roles}"
    );
    server.get("/settings/rbac/groups").is(200, "[]");
    for method in ["GET", "PUT", "DELETE"] {
        let reply = server
            .connect()
            .request(method, "/settings/rbac/groups/g", "");
        reply.is(404, "\"Unknown group.\"");
    }
}

#[test]
fn without_the_right_password_there_is_nothing_to_see() {
    let server = Server::start();
    for login in [
        None,
        Some(("root", "wrong")),
        Some(("nobody", "secret")),
        Some(("", "")),
    ] {
        let mut client = Client::connect(server.address, login);
        assert_eq!(client.request("GET", "/", "").status, 200);
        for path in [
            "/pools",
            "/whoami",
            "/no/such/path",
            "/pools/default/buckets/default",
            "/metrics",
        ] {
            let reply = client.request("GET", path, "");
            assert_eq!(reply.status, 401, "{login:?} {path}");
            assert!(
                reply
                    .header("www-authenticate")
                    .unwrap()
                    .starts_with("Basic ")
            );
        }
        assert_eq!(client.request("POST", "/", "").status, 401);
    }
}

#[test]
fn roles_decide() {
    let server = Server::start();
    const BUCKET: &str = "/pools/default/buckets/default";
    let users = [
        ("reader", "data_reader[default]"),
        ("other", "data_reader[other]"),
        ("manager", "bucket_admin[default]"),
        ("watcher", "ro_admin"),
        ("nothing", ""),
    ];
    for (user, roles) in users {
        put(&server, user, &format!("password=x&roles={roles}")).is(200, "\"\"");
    }
    let flush = format!("{BUCKET}/controller/doFlush");
    let scopes = format!("{BUCKET}/scopes");
    // (method, path, statuses for reader, other, manager, watcher, nothing)
    for (method, path, statuses) in [
        ("GET", "/whoami", [200; 5]),
        ("GET", "/pools", [200; 5]),
        ("GET", "/pools/default", [200, 200, 200, 200, 403]),
        ("POST", "/pools/default", [403; 5]),
        ("GET", BUCKET, [200, 403, 200, 200, 403]),
        ("GET", "/pools/default/b/default", [200, 403, 200, 200, 403]),
        ("GET", "/pools/default/b/missing", [403, 403, 403, 404, 403]),
        ("POST", BUCKET, [403, 403, 200, 403, 403]),
        ("POST", &flush, [403, 403, 400, 403, 403]),
        ("POST", &scopes, [403, 403, 400, 403, 403]),
        ("POST", "/pools/default/buckets", [403; 5]),
        ("DELETE", BUCKET, [403; 5]),
        ("GET", "/settings/rbac/users", [403, 403, 403, 200, 403]),
        ("DELETE", "/settings/rbac/users/local/root", [403; 5]),
        ("GET", "/kedge/timings/default", [403, 403, 200, 200, 403]),
        ("GET", "/metrics", [403, 403, 403, 200, 403]),
        ("GET", "/kedge/stats", [403, 403, 403, 200, 403]),
    ] {
        let found = users.map(|(user, _)| {
            server
                .connect_as(user, "x")
                .request(method, path, "")
                .status
        });
        assert_eq!(found, statuses, "{method} {path}");
    }
    let refused = server
        .connect_as("other", "x")
        .request("GET", BUCKET, "")
        .json();
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .starts_with("Forbidden.")
    );
    assert_eq!(refused["permissions"][0], "cluster.bucket[default].access");
    let seen = server
        .connect_as("other", "x")
        .request("GET", "/pools/default/buckets", "");
    seen.is(200, "[]");
}
