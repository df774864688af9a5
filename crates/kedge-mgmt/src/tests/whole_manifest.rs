//! `PUT` of a whole manifest.

use serde_json::{Value, json};

use super::Server;

const SCOPES: &str = "/pools/default/buckets/default/scopes";

/// The scopes of a manifest: what there is of `(scope, collection, id, maxTTL)`.
fn flat(manifest: &Value) -> Vec<(String, String, String, i64)> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap().to_owned();
    let scopes = manifest["scopes"].as_array().unwrap().iter();
    scopes
        .flat_map(|scope| {
            let collections = scope["collections"].as_array().unwrap().iter();
            collections.map(|it| {
                let max_ttl = it["maxTTL"].as_i64().unwrap();
                (
                    text(scope, "name"),
                    text(it, "name"),
                    text(it, "uid"),
                    max_ttl,
                )
            })
        })
        .collect()
}

fn row(scope: &str, name: &str, id: &str, max_ttl: i64) -> (String, String, String, i64) {
    (scope.to_owned(), name.to_owned(), id.to_owned(), max_ttl)
}

#[test]
fn manifest_put_replaces_the_manifest() {
    let server = Server::start();
    let mut client = server.connect();
    let mut put = |query: &str, wanted: &Value| {
        client.request("PUT", &format!("{SCOPES}{query}"), &wanted.to_string())
    };
    let first = json!({"scopes": [
        {"name": "_default", "collections": [{"name": "_default"}, {"name": "logs", "maxTTL": 60}]},
        {"name": "shop", "collections": [{"name": "orders", "maxTTL": -1}, {"name": "carts"}]},
        {"name": "empty"},
    ]});
    put("", &first).is(200, r#"{"uid":"1"}"#);
    let made = server.get(SCOPES).json();
    let expected = [
        row("_default", "_default", "0", 0),
        row("_default", "logs", "8", 60),
        row("shop", "orders", "9", -1),
        row("shop", "carts", "a", 0),
    ];
    assert_eq!(flat(&made), expected);
    assert_eq!(made["scopes"][2]["name"], "empty");
    // What is shown can be wanted, and changes nothing.
    put("", &made).is(200, r#"{"uid":"1"}"#);
    // Kept, changed, dropped and made, in one step; the default collection goes too.
    let second = json!({"scopes": [
        {"name": "_default", "collections": [{"name": "logs"}]},
        {"name": "shop", "collections": [{"name": "carts", "maxTTL": 5}, {"name": "new"}]},
        {"name": "other", "collections": [{"name": "orders"}]},
    ]});
    put("?validOnUid=2", &second).is(400, r#"{"errors":{"_":"The manifest has another uid: 1"}}"#);
    put("?validOnUid=1", &second).is(200, r#"{"uid":"2"}"#);
    let expected = [
        row("_default", "logs", "8", 0),
        row("shop", "carts", "a", 5),
        row("shop", "new", "b", 0),
        row("other", "orders", "c", 0),
    ];
    assert_eq!(flat(&server.get(SCOPES).json()), expected);
}

#[test]
fn invalid_manifest_put_is_rejected_and_changes_nothing() {
    let server = Server::start();
    let default = json!({"name": "_default", "collections": [{"name": "_default"}]});
    let with = |scope: Value| json!({"scopes": [default, scope]}).to_string();
    let first = "First character must not be _ or %";
    for (query, wanted, field, says) in [
        (
            "",
            "{\"scopes\":[]}".to_owned(),
            "_",
            "Deleting _default scope is not allowed",
        ),
        ("", with(json!({"name": "_s"})), "name", first),
        (
            "",
            with(json!({"name": "s", "collections": [{"name": "_default"}]})),
            "name",
            first,
        ),
        (
            "",
            with(default.clone()),
            "_",
            "Scope with name \"_default\" already exists",
        ),
        (
            "",
            with(json!({"name": "s", "collections": [{"name": "c"}, {"name": "c"}]})),
            "_",
            "Collection with name \"c\" in scope \"s\" already exists",
        ),
        (
            "",
            with(json!({"name": "s", "collections": [{"name": "c", "maxTTL": -2}]})),
            "_",
            "maxTTL of \"c\": The value must be in range from -1 to 2147483647",
        ),
        (
            "",
            with(json!({"name": "s", "collections": [{"name": "c", "history": true}]})),
            "_",
            "history of \"c\": Not supported for storage mode couchstore",
        ),
        (
            "?validOnUid=x",
            with(json!({"name": "s"})),
            "validOnUid",
            "The uid is not a hexadecimal number.",
        ),
    ] {
        let mut client = server.connect();
        let reply = client.request("PUT", &format!("{SCOPES}{query}"), &wanted);
        assert_eq!(reply.status, 400, "{wanted}");
        assert_eq!(reply.json(), json!({"errors": {field: says}}), "{wanted}");
    }
    for wanted in ["", "[]", "{\"scopes\":[{\"nam\":\"s\"}]}", "{\"scope\":[]}"] {
        let reply = server.connect().request("PUT", SCOPES, wanted);
        assert_eq!(reply.status, 400, "{wanted}");
    }
    assert_eq!(server.get(SCOPES).json()["uid"], "0");
    // Who may manage one scope only may not decide about all.
    assert_eq!(server.post(SCOPES, "name=s").status, 200);
    let form = "password=x&roles=scope_admin[default:s]";
    let path = "/settings/rbac/users/local/scope";
    assert_eq!(server.connect().request("PUT", path, form).status, 200);
    let refused = server.connect_as("scope", "x");
    let mut refused = refused;
    assert_eq!(
        refused
            .request("PUT", SCOPES, &with(json!({"name": "s"})))
            .status,
        403
    );
}
