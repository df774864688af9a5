//! Roles that administrators define.

use serde_json::json;

use super::Server;

const ORDERS: &str = "/kedge/roles/orders";
const ADA: &str = "/settings/rbac/users/local/ada";

fn define(server: &Server, form: &str) -> u16 {
    server.connect().request("PUT", ORDERS, form).status
}

/// Returns whether ada has a permission.
fn may(server: &Server, permission: &str) -> bool {
    let mut client = server.connect_as("ada", "secret");
    let path = "/pools/default/checkPermissions";
    let reply = client.request("POST", path, permission);
    reply.json()[permission].as_bool().unwrap()
}

#[test]
fn defined_role_is_listed_given_changed_and_removed() {
    let server = Server::start();
    let form = "privileges=insert,xattr!write&description=Adds orders";
    assert_eq!(define(&server, form), 200);
    let role = json!({
        "name": "orders",
        "description": "Adds orders",
        "scope": "collection",
        "privileges": ["access", "insert", "xattr!write"],
    });
    assert_eq!(server.get(ORDERS).json(), role);
    assert_eq!(server.get("/kedge/roles").json(), json!([role]));
    let all = server.get("/settings/rbac/roles").json();
    let listed = json!({
        "role": "orders",
        "bucket_name": "*",
        "scope_name": "*",
        "collection_name": "*",
        "name": "orders",
        "desc": "Adds orders",
        "custom": true,
    });
    assert_eq!(all.as_array().unwrap().last(), Some(&listed));

    let put = |form: &str| server.connect().request("PUT", ADA, form).status;
    assert_eq!(
        put("password=secret&roles=orders[default:_default:_default]"),
        200
    );
    let user = server.get(ADA).json();
    let expected = json!([{
        "role": "orders",
        "bucket_name": "default",
        "scope_name": "_default",
        "collection_name": "_default",
        "origins": [{ "type": "user" }],
    }]);
    assert_eq!(user["roles"], expected);
    let here =
        |what: &str| format!("cluster.collection[default:_default:_default].data.docs!{what}");
    assert!(may(&server, &here("insert")) && !may(&server, &here("upsert")));
    assert!(!may(&server, "cluster.bucket[default].data.docs!insert"));
    // The user has the new privileges at once.
    assert_eq!(define(&server, "privileges=upsert,read"), 200);
    assert!(may(&server, &here("upsert")) && may(&server, &here("read")));
    assert!(may(&server, &here("insert")), "who may change may add");

    // In use: neither its extent nor its existence changes.
    let reply = server.connect().request("DELETE", ORDERS, "");
    assert_eq!(reply.status, 400);
    let why = reply.json()["errors"]["_"].as_str().unwrap().to_owned();
    assert!(why.contains("in use") && why.contains("ada"), "{why}");
    assert_eq!(define(&server, "privileges=upsert&scope=bucket"), 400);
    let path = "/settings/rbac/groups/g";
    let group = server.connect().request("PUT", path, "roles=orders[*]");
    assert_eq!(group.status, 200);
    assert_eq!(put("roles="), 200);
    assert_eq!(server.connect().request("DELETE", ORDERS, "").status, 400);
    assert_eq!(server.connect().request("DELETE", path, "").status, 200);
    server
        .connect()
        .request("DELETE", ORDERS, "")
        .is(200, "\"\"");
    let gone = server.connect().request("DELETE", ORDERS, "");
    gone.is(404, "\"Unknown role.\"");
    assert_eq!(server.get(ORDERS).status, 404);
    assert_eq!(put("roles=orders[default]"), 400);
}

#[test]
fn role_definitions_that_are_refused() {
    let server = Server::start();
    for (path, form, field) in [
        (ORDERS, "", "privileges"),
        (ORDERS, "privileges=fly", "privileges"),
        (ORDERS, "privileges=admin&scope=cluster", "privileges"),
        (ORDERS, "privileges=users!write", "privileges"),
        (ORDERS, "privileges=manage&scope=scope", "privileges"),
        (ORDERS, "privileges=read&scope=galaxy", "scope"),
        ("/kedge/roles/data_reader", "privileges=read", "privileges"),
        ("/kedge/roles/query_select", "privileges=read", "privileges"),
        ("/kedge/roles/kedge.own", "privileges=read", "_"),
        ("/kedge/roles/a%2Cb", "privileges=read", "_"),
        ("/kedge/roles/a%5Bb%5D", "privileges=read", "_"),
        (ORDERS, "privileges=read&description=a%07b", "description"),
    ] {
        let reply = server.connect().request("PUT", path, form);
        assert_eq!(reply.status, 400, "{path} {form}");
        assert!(
            reply.json()["errors"][field].is_string(),
            "{form}: {reply:?}"
        );
    }
    assert_eq!(server.get("/kedge/roles").json(), json!([]));
}

/// A manager of users could otherwise define a role with rights that nobody has given.
#[test]
fn only_administrators_define_roles() {
    let server = Server::start();
    let form = "password=secret&roles=security_admin";
    assert_eq!(server.connect().request("PUT", ADA, form).status, 200);
    let mut ada = server.connect_as("ada", "secret");
    assert_eq!(ada.request("PUT", ORDERS, "privileges=read").status, 403);
    assert_eq!(ada.request("DELETE", ORDERS, "").status, 403);
    assert_eq!(ada.request("GET", "/kedge/roles", "").status, 200);
    // A role that allows to give rights is given by administrators only.
    let guarded = "privileges=users!write,users!read&scope=cluster";
    assert_eq!(define(&server, guarded), 200);
    let give = "password=secret&roles=orders";
    let path = "/settings/rbac/users/local/bob";
    assert_eq!(ada.request("PUT", path, give).status, 403);
    assert_eq!(server.connect().request("PUT", path, give).status, 200);
}
