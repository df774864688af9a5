//! Scopes and collections come, change and go.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Server;

const SCOPES: &str = "/pools/default/buckets/default/scopes";

/// `scope.collection` of all that a manifest shows; a scope without collections is there too.
fn names(manifest: &Value) -> Vec<String> {
    let text = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let mut names = Vec::new();
    for scope in manifest["scopes"].as_array().unwrap() {
        let collections = scope["collections"].as_array().unwrap();
        if collections.is_empty() {
            names.push(text(scope));
        }
        for collection in collections {
            names.push(format!("{}.{}", text(scope), text(collection)));
        }
    }
    names
}

#[test]
fn scopes_and_collections_over_rest() {
    let server = Server::start();
    let mut client = server.connect();
    let long = format!("name={}", "n".repeat(252));
    let exists = r#"{"errors":{"_":"Scope with name \"s\" already exists"}}"#;
    let no_scope = r#"{"errors":{"_":"Scope with name \"none\" is not found"}}"#;
    let no_collection =
        r#"{"errors":{"_":"Collection with name \"none\" in scope \"s\" is not found"}}"#;
    let first = r#"{"errors":{"name":"First character must not be _ or %"}}"#;
    let range = r#"{"errors":{"maxTTL":"The value must be in range from -1 to 2147483647"}}"#;
    // (method, path below scopes, form, status, what is said)
    for (method, path, form, status, says) in [
        ("POST", "", "name=s", 200, r#"{"uid":"1"}"#),
        ("POST", "", "name=s", 400, exists),
        ("POST", "", "name=_s", 400, first),
        ("POST", "", "name=%25", 400, first),
        (
            "POST",
            "",
            "name=a.b",
            400,
            r#"{"errors":{"name":"Can only contain characters A-Z, a-z, 0-9 and the following symbols _ - %"}}"#,
        ),
        (
            "POST",
            "",
            &long,
            400,
            r#"{"errors":{"name":"Length must be in range from 1 to 251"}}"#,
        ),
        (
            "POST",
            "",
            "",
            400,
            r#"{"errors":{"name":"The value must be supplied"}}"#,
        ),
        (
            "POST",
            "",
            "name=x&maxTTL=1",
            400,
            r#"{"errors":{"maxTTL":"Unsupported key"}}"#,
        ),
        ("POST", "/s/collections", "name=c", 200, r#"{"uid":"2"}"#),
        (
            "POST",
            "/s/collections",
            "name=c",
            400,
            r#"{"errors":{"_":"Collection with name \"c\" in scope \"s\" already exists"}}"#,
        ),
        ("POST", "/none/collections", "name=c", 404, no_scope),
        ("POST", "/s/collections", "name=_c", 400, first),
        (
            "POST",
            "/s/collections",
            "name=ttl&maxTTL=60&history=false",
            200,
            r#"{"uid":"3"}"#,
        ),
        ("POST", "/s/collections", "name=d&maxTTL=-2", 400, range),
        (
            "POST",
            "/s/collections",
            "name=d&maxTTL=2147483648",
            400,
            range,
        ),
        (
            "POST",
            "/s/collections",
            "name=d&maxTTL=x",
            400,
            r#"{"errors":{"maxTTL":"The value must be an integer"}}"#,
        ),
        (
            "POST",
            "/s/collections",
            "name=d&history=true",
            400,
            r#"{"errors":{"history":"Not supported for storage mode couchstore"}}"#,
        ),
        (
            "POST",
            "/s/collections",
            "name=d&maxTtl=1",
            400,
            r#"{"errors":{"maxTtl":"Unsupported key"}}"#,
        ),
        (
            "POST",
            "/_default/collections",
            "name=never&maxTTL=-1",
            200,
            r#"{"uid":"4"}"#,
        ),
        (
            "PATCH",
            "/s/collections/c",
            "maxTTL=5",
            200,
            r#"{"uid":"5"}"#,
        ),
        (
            "PATCH",
            "/s/collections/c",
            "maxTTL=5",
            200,
            r#"{"uid":"5"}"#,
        ),
        ("PATCH", "/s/collections/c", "", 200, r#"{"uid":"5"}"#),
        (
            "PATCH",
            "/s/collections/none",
            "maxTTL=5",
            404,
            no_collection,
        ),
        ("PATCH", "/none/collections/c", "maxTTL=5", 404, no_scope),
        ("DELETE", "/s/collections/none", "", 404, no_collection),
        ("DELETE", "/none", "", 404, no_scope),
        (
            "DELETE",
            "/_default",
            "",
            400,
            r#"{"errors":{"_":"Deleting _default scope is not allowed"}}"#,
        ),
    ] {
        let reply = client.request(method, &format!("{SCOPES}{path}"), form);
        assert_eq!(
            (reply.status, &*reply.body),
            (status, says),
            "{method} {path} {form}"
        );
    }
    let expected = json!({
        "uid": "5",
        "scopes": [
            {"name": "_default", "uid": "0", "collections": [
                {"name": "_default", "uid": "0", "maxTTL": 0, "history": false},
                {"name": "never", "uid": "a", "maxTTL": -1, "history": false},
            ]},
            {"name": "s", "uid": "8", "collections": [
                {"name": "c", "uid": "8", "maxTTL": 5, "history": false},
                {"name": "ttl", "uid": "9", "maxTTL": 60, "history": false},
            ]},
        ],
    });
    assert_eq!(server.get(SCOPES).json(), expected);
    for (path, uid) in [("/s/collections/c", "6"), ("/s", "7")] {
        let reply = client.request("DELETE", &format!("{SCOPES}{path}"), "");
        reply.is(200, &format!(r#"{{"uid":"{uid}"}}"#));
    }
    let left = names(&server.get(SCOPES).json());
    assert_eq!(left, ["_default._default", "_default.never"]);
    let missing = "/pools/default/buckets/missing/scopes";
    server
        .post(missing, "name=s")
        .is(404, "Requested resource not found.");
}

/// Clients that read the map see that there is another manifest.
#[test]
fn config_has_the_manifest_uid() {
    let server = Server::start();
    let before = server.registry.cluster().revision();
    server.post(SCOPES, "name=s").is(200, r#"{"uid":"1"}"#);
    assert!(server.registry.cluster().revision() > before);
    let bucket = "/pools/default/buckets/default";
    for path in [bucket, "/pools/default/b/default"] {
        let document = server.get(path).json();
        assert_eq!(document["collectionsManifestUid"], "1", "{path}");
    }
    let before = server.registry.cluster().revision();
    server.post(SCOPES, "name=s");
    let refused = server.registry.cluster().revision();
    assert_eq!(refused, before, "nothing was changed");
    // Another change of the bucket keeps it.
    server.post(bucket, "ramQuotaMB=100").is(200, "");
    let document = server.get("/pools/default/b/default").json();
    assert_eq!(document["collectionsManifestUid"], "1");
}

#[test]
fn ensure_manifest_waits_for_a_manifest() {
    let server = Server::start();
    let ask = |uid: &str| server.post(&format!("{SCOPES}/@ensureManifest/{uid}"), "");
    ask("0").is(200, "{}");
    assert_eq!(ask("1").status, 504);
    assert_eq!(ask("x").status, 400);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let begun = Instant::now();
            while ask("a").status != 200 {
                assert!(begun.elapsed() < Duration::from_secs(30), "it never comes");
            }
        });
        for number in 1..=10 {
            let made = server.post(SCOPES, &format!("name=s{number}"));
            made.is(200, &format!(r#"{{"uid":"{number:x}"}}"#));
        }
        waits.join().unwrap();
    });
}

#[test]
fn roles_restrict_collections_that_are_seen_and_changed() {
    let server = Server::start();
    for (path, form) in [
        ("", "name=s"),
        ("", "name=t"),
        ("/s/collections", "name=a"),
        ("/s/collections", "name=b"),
        ("/t/collections", "name=a"),
    ] {
        let made = server.post(&format!("{SCOPES}{path}"), form);
        assert_eq!(made.status, 200, "{made:?}");
    }
    let users = [
        ("all", "scope_admin[default]"),
        ("scope", "scope_admin[default:s]"),
        ("reader", "data_reader[default:s:a]"),
        ("whole", "data_reader[default]"),
        ("manager", "bucket_admin[default]"),
        ("other", "scope_admin[other]"),
    ];
    let other = kedge_bucket::BucketConfig::new("other", 1, 64 << 20);
    server.registry.create(other).unwrap();
    for (user, roles) in users {
        let path = format!("/settings/rbac/users/local/{user}");
        let form = format!("password=x&roles={roles}");
        assert_eq!(server.connect().request("PUT", &path, &form).status, 200);
    }
    let everything = ["_default._default", "s.a", "s.b", "t.a"];
    for (user, seen) in [
        ("all", &everything[..]),
        ("scope", &["s.a", "s.b"]),
        ("reader", &["s.a"]),
        ("whole", &everything),
        ("manager", &everything),
    ] {
        let manifest = server.connect_as(user, "x").request("GET", SCOPES, "");
        assert_eq!(names(&manifest.json()), seen, "{user}");
    }
    // (method, path below scopes, form, statuses for the users in their order); none of it succeeds twice.
    for (method, path, form, statuses) in [
        ("GET", "", "", [200, 200, 200, 200, 200, 403]),
        ("POST", "", "name=_", [400, 403, 403, 403, 400, 403]),
        ("DELETE", "/none", "", [404, 403, 403, 403, 404, 403]),
        (
            "POST",
            "/s/collections",
            "name=_",
            [400, 400, 403, 403, 400, 403],
        ),
        (
            "POST",
            "/t/collections",
            "name=_",
            [400, 403, 403, 403, 400, 403],
        ),
        (
            "DELETE",
            "/s/collections/none",
            "",
            [404, 404, 403, 403, 404, 403],
        ),
        (
            "PATCH",
            "/t/collections/none",
            "maxTTL=1",
            [404, 403, 403, 403, 404, 403],
        ),
    ] {
        let found = users.map(|(user, _)| {
            let mut client = server.connect_as(user, "x");
            client
                .request(method, &format!("{SCOPES}{path}"), form)
                .status
        });
        assert_eq!(found, statuses, "{method} {path}");
    }
    let mut scope = server.connect_as("scope", "x");
    let path = format!("{SCOPES}/s/collections");
    assert_eq!(scope.request("POST", &path, "name=c").status, 200);
    let refused = scope.request("POST", SCOPES, "name=u").json();
    let missing = "cluster.bucket[default].collections!write";
    assert_eq!(refused["permissions"][0], missing);
}
