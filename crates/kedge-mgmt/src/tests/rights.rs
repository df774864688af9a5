//! Every path of the router, against every role, and without a login.
//!
//! The paths are read from the source of the router, so that none can be forgotten. The table of what each role may do is the page
//! `docs/reference/rights.md`: a change of rights is a change of that page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use kedge_auth::{HashCost, Roles, UserStore, roles_catalogue};
use kedge_bucket::BucketConfig;

use super::client::Client;
use super::{Server, VBUCKETS};
use crate::auth::OPEN_PATHS;
use crate::security_headers::SECURITY_HEADERS;
use crate::session_login::LOGIN_PATH;

/// The source of the router.
const ROUTER: &str = include_str!("../router.rs");
const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
const PASSWORD: &str = "secret";

/// Reads the methods and paths of the routes in a source.
fn routes(source: &str) -> BTreeSet<(String, String)> {
    let bucket = source.split("const BUCKET: &str = \"").nth(1).unwrap();
    let bucket = bucket.split('"').next().unwrap();
    let mut found = BTreeSet::new();
    for call in source.split(".route(").skip(1) {
        let call = argument(call);
        let path = match call.split('"').nth(1) {
            Some(path) if !call.trim_start().starts_with("BUCKET") => path,
            _ => bucket,
        };
        let path = path.replace("{BUCKET}", bucket);
        let path = path.replace("{{", "{").replace("}}", "}");
        for method in METHODS {
            let is_there = [" ", ".", ":", "\n"];
            let mut starts = is_there.iter();
            if starts.any(|start| call.contains(&format!("{start}{method}("))) {
                found.insert((path.clone(), method.to_uppercase()));
            }
        }
    }
    found
}

/// Returns the arguments of a call up to its closing parenthesis.
fn argument(call: &str) -> &str {
    let mut depth = 1;
    let end = call.find(|letter| {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        depth == 0
    });
    &call[..end.expect("the call has an end")]
}

/// Replaces the parameters of a path by names.
fn filled(path: &str) -> String {
    let names = [
        ("{bucket}", "default"),
        ("{scope}", "_default"),
        ("{collection}", "_default"),
        ("{domain}", "local"),
        ("{user}", "nobody"),
        ("{group}", "nobody"),
        ("{role}", "nobody"),
        ("{node}", "127.0.0.1:1"),
        ("{name}", "get"),
        ("{uid}", "0"),
        ("{id}", "0"),
        ("{trial}", "connectivity"),
        ("{part}", "audit"),
    ];
    let fill = |path: String, (parameter, name): (&str, &str)| path.replace(parameter, name);
    let filled = names.into_iter().fold(path.to_owned(), fill);
    assert!(!filled.contains('{'), "{path}: give its parameter a name");
    filled
}

/// The text forms of all roles, for the bucket `default`.
fn roles() -> Vec<String> {
    let all = roles_catalogue().into_iter();
    all.map(|role| match role.bucket_name {
        Some(_) => format!("{}[default]", role.role),
        None => role.role.to_owned(),
    })
    .collect()
}

/// Returns whether a request needs no login. That of a login without a name is refused as any wrong one.
fn is_open(method: &str, path: &str) -> bool {
    method == "GET" && OPEN_PATHS.contains(&path)
}

/// A user for each role, and one without any.
fn users(roles: &[String]) -> UserStore {
    let mut users = UserStore::new().unwrap();
    users.set_hash_cost(HashCost::new(64, 1).unwrap());
    users.add("root", PASSWORD, Roles::admin(), 1).unwrap();
    users.add("none", PASSWORD, Roles::default(), 1).unwrap();
    for (number, role) in roles.iter().enumerate() {
        let name = format!("user{number}");
        users
            .add(&name, PASSWORD, role.parse().unwrap(), 1)
            .unwrap();
    }
    users
}

/// Sends a request without a body, and returns status and headers. Some replies are streams, whose bodies do not end.
fn ask(
    server: &Server,
    login: Option<(&str, &str)>,
    method: &str,
    path: &str,
) -> (u16, Vec<(String, String)>) {
    let mut client = Client::connect(server.address, login);
    client.head(method, path, "Content-Length: 0\r\nConnection: close\r\n");
    client.reply_head()
}

/// Creates the bucket again, if the last request has dropped it.
fn restore(server: &Server) {
    if server.registry.get("default").is_none() {
        let bucket = BucketConfig::new("default", VBUCKETS, 64 << 20);
        let bucket = server.registry.create(bucket).unwrap();
        bucket.wait_loaded().unwrap();
    }
}

#[test]
fn routes_are_read_from_the_router() {
    let source = r#"
        const BUCKET: &str = "/b/{bucket}";
        Router::new()
            .route("/", get(a::b))
            .route(BUCKET, get(a).post(b::get))
            .route(&format!("{BUCKET}/x/{{y}}"), axum::routing::delete(c)
                .patch(d))
    "#;
    let found = routes(source);
    let found: Vec<String> = found
        .iter()
        .map(|(path, method)| format!("{method} {path}"))
        .collect();
    assert_eq!(
        found,
        [
            "GET /",
            "GET /b/{bucket}",
            "POST /b/{bucket}",
            "DELETE /b/{bucket}/x/{y}",
            "PATCH /b/{bucket}/x/{y}"
        ]
    );
}

#[test]
fn every_path_needs_a_login_and_has_security_headers() {
    let server = Server::start();
    let routes = routes(ROUTER);
    assert!(routes.len() > 90, "{}", routes.len());
    for (path, method) in &routes {
        let (status, headers) = ask(&server, None, method, &filled(path));
        let is_open = is_open(method, path);
        assert_eq!(status == 401, !is_open, "{method} {path}: {status}");
        for (name, value) in SECURITY_HEADERS {
            let found = headers.iter().find(|(known, _)| known == name.as_str());
            let found = found.map(|(_, value)| value.as_str());
            assert_eq!(found, Some(value), "{method} {path}: {name}");
        }
    }
    // A wrong password is none.
    for (path, method) in &routes {
        let login = Some(("root", "wrong"));
        let (status, _) = ask(&server, login, method, &filled(path));
        let is_open = is_open(method, path);
        assert_eq!(status == 401, !is_open, "{method} {path}: {status}");
    }
}

/// Returns the page: for each path the roles that may use it.
fn page(server: &Server, roles: &[String]) -> String {
    let mut rows: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for (path, method) in routes(ROUTER) {
        let is_open = is_open(&method, &path);
        if path == LOGIN_PATH {
            rows.insert((path, method), vec!["no login is needed"]);
            continue;
        }
        let mut allowed = Vec::new();
        let is_allowed = |user: &str| {
            restore(server);
            let login = Some((user, PASSWORD));
            let (status, _) = ask(server, login, &method, &filled(&path));
            assert_ne!(status, 401, "{method} {path} {user}");
            status != 403
        };
        let everybody = is_allowed("none");
        for (number, role) in roles.iter().enumerate() {
            if is_allowed(&format!("user{number}")) {
                allowed.push(role.split('[').next().unwrap_or(role));
            }
        }
        let allowed = match (is_open, everybody) {
            (true, _) => vec!["no login is needed"],
            (_, true) => vec!["every user"],
            _ => allowed,
        };
        rows.insert((path, method), allowed);
    }
    let mut text = String::from(
        "# Rights of roles in management\n\n\
         Generated from the routes and their answers; a test checks that this file is current.\n\n\
         For each path of [management](http.md) the roles whose users are not refused with 403. Roles for a bucket count for that bucket. A path \
         that every user may request may show more to some than to others.\n\n\
         | request | roles |\n|---|---|\n",
    );
    for ((path, method), allowed) in rows {
        let _ = writeln!(text, "| {method} `{path}` | {} |", allowed.join(", "));
    }
    text
}

#[test]
fn rights_of_every_role_are_as_documented() {
    let roles = roles();
    let server = Server::start_for(users(&roles));
    let page = page(&server, &roles);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/rights.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let documented = std::fs::read_to_string(&file).unwrap_or_default();
    let differs = page
        .lines()
        .zip(documented.lines())
        .find(|(now, then)| now != then);
    assert!(
        page == documented,
        "docs/reference/rights.md is stale: check the difference, and set UPDATE_DOCS=1: {differs:?}"
    );
}
