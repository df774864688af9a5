//! The rights of users and groups.

use kedge_auth::{Roles, UserStore};
use kedge_bucket::BucketConfig;
use kedge_cluster::CLUSTER_USER;

use super::Server;
use super::client::Client;

const USERS: &str = "/settings/rbac/users";

fn put(server: &Server, user: &str, form: &str) -> super::Reply {
    server
        .connect()
        .request("PUT", &format!("{USERS}/local/{user}"), form)
}

#[test]
fn user_life_cycle_over_rest() {
    let server = Server::start();
    put(
        &server,
        "ada",
        "name=Ada+L.&password=love%20lace&roles=data_reader[default],bucket_admin[*]&groups=",
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
        serde_json::json!({
            "role": "data_reader", "bucket_name": "default", "scope_name": "*", "collection_name": "*",
            "origins": [{"type": "user"}],
        })
    );
    for path in [USERS.to_owned(), format!("{USERS}/local")] {
        let list = server.get(&path).json();
        let ids: Vec<&str> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|user| user["id"].as_str().unwrap())
            .collect();
        // Not the administrator of the settings: clients found a user that they had not made.
        assert_eq!(ids, ["ada"]);
    }
    let built_in = server.get(&format!("{USERS}/admin")).json();
    assert_eq!(built_in[0]["id"], "root");
    assert_eq!(built_in[0]["domain"], "admin");
    assert_eq!(built_in[1], serde_json::Value::Null);
    server.get(&format!("{USERS}/external")).is(200, "[]");

    put(&server, "ada", "name=Ada+L.&roles=ro_admin").is(200, "\"\"");
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
fn invalid_users_are_rejected_by_field() {
    let server = Server::start();
    // (user, form, field, part of what is said)
    for (user, form, field, says) in [
        ("ada", "roles=admin", "password", "empty"),
        ("ada", "password=&roles=admin", "password", "empty"),
        ("ada", "password=x&roles=king", "roles", "[king]"),
        ("ada", "password=x&roles=data_reader", "roles", "bucket"),
        (
            "ada",
            "password=x&groups=g",
            "groups",
            "unknown group \"g\"",
        ),
        ("ada", "password=x&name=a%07", "name", "display name"),
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
    for method in ["GET", "DELETE"] {
        let reply = server
            .connect()
            .request(method, "/settings/rbac/groups/g", "");
        reply.is(404, "\"Unknown group.\"");
    }
    let mut root = server.connect();
    let mut group = |method: &str, name: &str, form: &str| {
        root.request(method, &format!("/settings/rbac/groups/{name}"), form)
    };
    let form = "description=may+read&roles=data_reader[default],ro_admin&ldap_group_ref=cn%3Dx";
    group("PUT", "readers", form).is(200, "\"\"");
    group("PUT", "empty", "").is(200, "\"\"");
    let expected = serde_json::json!({
        "id": "readers",
        "description": "may read",
        "roles": [
            {"role": "data_reader", "bucket_name": "default", "scope_name": "*", "collection_name": "*"},
            {"role": "ro_admin"},
        ],
        "ldap_group_ref": "cn=x",
    });
    assert_eq!(group("GET", "readers", "").json(), expected);
    // A client that read an empty reference took the group for one of a directory.
    let empty = serde_json::json!({"id": "empty", "description": "", "roles": []});
    assert_eq!(group("GET", "empty", "").json(), empty);
    let list = server.get("/settings/rbac/groups").json();
    assert_eq!(list.as_array().unwrap().len(), 2);
    assert_eq!(list[1], expected);

    put(
        &server,
        "ada",
        "password=x&roles=ro_admin,data_writer[default]&groups=readers,empty",
    )
    .is(200, "\"\"");
    let ada = server.get(&format!("{USERS}/local/ada")).json();
    assert_eq!(ada["groups"], serde_json::json!(["empty", "readers"]));
    assert_eq!(
        ada["roles"],
        serde_json::json!([
            {"role": "ro_admin",
             "origins": [{"type": "user"}, {"type": "group", "name": "readers"}]},
            {"role": "data_writer", "bucket_name": "default", "scope_name": "*", "collection_name": "*",
             "origins": [{"type": "user"}]},
            {"role": "data_reader", "bucket_name": "default", "scope_name": "*", "collection_name": "*",
             "origins": [{"type": "group", "name": "readers"}]},
        ])
    );
    let whoami = server
        .connect_as("ada", "x")
        .request("GET", "/whoami", "")
        .json();
    assert_eq!(whoami["roles"].as_array().unwrap().len(), 3);
    put(&server, "ada", "roles=&groups=readers,empty").is(200, "\"\"");
    let seen = |path: &str| {
        let reply = server.connect_as("ada", "x").request("GET", path, "");
        reply.status
    };
    assert_eq!(seen(USERS), 200);
    // A list that is empty, or not given, takes a user out of all groups.
    put(&server, "ada", "groups=").is(200, "\"\"");
    assert_eq!(seen(USERS), 403);
    put(&server, "ada", "groups=readers").is(200, "\"\"");
    assert_eq!(seen(USERS), 200);
    group("PUT", "readers", "roles=").is(200, "\"\"");
    assert_eq!(seen(USERS), 403);
    group("DELETE", "readers", "").is(200, "\"\"");
    let ada = server.get(&format!("{USERS}/local/ada")).json();
    assert_eq!(ada["groups"], serde_json::json!([]));
    for (name, form, field) in [
        ("g", "roles=king", "roles"),
        ("g%20h", "", "_"),
        ("g", "description=%07", "description"),
    ] {
        let reply = group("PUT", name, form);
        assert_eq!(reply.status, 400, "{name} {form}: {reply:?}");
        assert!(reply.json()["errors"][field].is_string(), "{reply:?}");
    }
}

/// Tools give roles of services that are not here, and read them back: they were refused as unknown.
#[test]
fn roles_of_other_services_are_stored() {
    let server = Server::start();
    assert_eq!(
        server
            .post("/pools/default/buckets/default/scopes", "name=s")
            .status,
        200
    );
    let form = "password=love%20lace&roles=query_select[default:s],query_system_catalog,replication_admin,views_admin[*]";
    put(&server, "ada", form).is(200, "\"\"");
    let origins = serde_json::json!([{"type": "user"}]);
    let ada = server.get(&format!("{USERS}/local/ada")).json();
    let expected = serde_json::json!([
        {"role": "query_select", "bucket_name": "default", "scope_name": "s", "collection_name": "*",
         "origins": origins},
        {"role": "query_system_catalog", "origins": origins},
        {"role": "replication_admin", "origins": origins},
        {"role": "views_admin", "bucket_name": "*", "origins": origins},
    ]);
    assert_eq!(ada["roles"], expected);
    put(
        &server,
        "bob",
        "password=love%20lace&roles=query_select[default]",
    )
    .is(200, "\"\"");
    let mut bob = server.connect_as("bob", "love lace");
    for (path, status) in [
        ("/pools/default", 200),
        ("/pools/default/buckets/default", 200),
        ("/pools/default/buckets/default/stats", 403),
        ("/settings/rbac/users", 403),
        ("/metrics", 403),
    ] {
        assert_eq!(bob.request("GET", path, "").status, status, "{path}");
    }
    let listed = server.get("/settings/rbac/roles").json();
    let listed = listed.as_array().unwrap();
    for role in ["query_select", "replication_admin", "security_admin_local"] {
        assert!(listed.iter().any(|known| known["role"] == role), "{role}");
    }
}

/// Tools ask before they begin whether their user may do what they need; the call was 404.
#[test]
fn check_permissions_reports_the_callers_permissions() {
    let server = Server::start();
    let check = "/pools/default/checkPermissions";
    assert_eq!(
        server
            .post("/pools/default/buckets/default/scopes", "name=s")
            .status,
        200
    );
    server
        .registry
        .create(BucketConfig::new("b", 1, 64 << 20))
        .unwrap();
    assert_eq!(
        server.get("/pools/default").json()["checkPermissionsURI"],
        check
    );
    put(
        &server,
        "ada",
        "password=love%20lace&roles=data_reader[default:s],bucket_admin[b]",
    )
    .is(200, "\"\"");
    let mut ada = server.connect_as("ada", "love lace");
    let asked = "cluster.bucket[default].data.docs!read, cluster.collection[default:s:c].data.docs!read\n\
                 cluster.bucket[b]!flush,cluster.admin.security!write\n,cluster.what!read\n";
    let expected = serde_json::json!({
        "cluster.bucket[default].data.docs!read": false,
        "cluster.collection[default:s:c].data.docs!read": true,
        "cluster.bucket[b]!flush": true,
        "cluster.admin.security!write": false,
        "cluster.what!read": false,
    });
    let reply = ada.request("POST", check, asked);
    assert_eq!((reply.status, reply.json()), (200, expected));
    for bad in ["", " ,\n", "cluster.pools!read,nonsense"] {
        let reply = ada.request("POST", check, bad);
        assert_eq!(reply.status, 400, "{bad:?}");
        assert!(reply.json().is_string(), "{bad:?}");
    }
    let nobody = server.connect_as("ada", "wrong").request("POST", check, "");
    assert_eq!(nobody.status, 401);
}

/// A manager of users must not become an administrator by it.
#[test]
fn user_admins_cannot_grant_the_right_to_grant_rights() {
    let server = Server::start();
    put(&server, "eve", "password=x&roles=user_admin_local").is(200, "\"\"");
    let mut eve = server.connect_as("eve", "x");
    for (method, path, form, status) in [
        ("PUT", "users/local/eve", "roles=admin", 403),
        ("PUT", "users/local/root", "password=y", 403),
        ("DELETE", "users/local/root", "", 403),
        (
            "PUT",
            "users/local/bob",
            "password=x&roles=security_admin",
            403,
        ),
        ("PUT", "groups/g", "roles=admin", 403),
        ("PUT", "groups/g", "roles=data_reader[*]", 200),
        ("PUT", "users/local/bob", "password=x&groups=g", 200),
        ("DELETE", "groups/g", "", 200),
        ("DELETE", "users/local/bob", "", 200),
    ] {
        let reply = eve.request(method, &format!("/settings/rbac/{path}"), form);
        assert_eq!(reply.status, status, "{method} {path} {form}: {reply:?}");
    }
    assert!(server.connect().request("GET", "/whoami", "").status == 200);
}

#[test]
fn wrong_password_is_refused_everywhere() {
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
fn roles_restrict_management_calls() {
    let server = Server::start();
    const BUCKET: &str = "/pools/default/buckets/default";
    let other = BucketConfig::new("other", 1, 64 << 20);
    server.registry.create(other).unwrap();
    let users = [
        ("reader", "data_reader[default]"),
        ("other", "data_reader[other]"),
        ("manager", "bucket_admin[default]"),
        ("watcher", "ro_admin"),
        ("nothing", ""),
        ("operator", "cluster_admin"),
        ("warden", "security_admin"),
    ];
    for (user, roles) in users {
        put(&server, user, &format!("password=x&roles={roles}")).is(200, "\"\"");
    }
    server.registry.drop_bucket("other").unwrap();
    let flush = format!("{BUCKET}/controller/doFlush");
    let scopes = format!("{BUCKET}/scopes");
    // (method, path, statuses for reader, other, manager, watcher, nothing, operator, warden)
    for (method, path, statuses) in [
        ("GET", "/whoami", [200; 7]),
        ("GET", "/pools", [200; 7]),
        ("GET", "/pools/default", [200, 200, 200, 200, 403, 200, 200]),
        (
            "POST",
            "/pools/default",
            [403, 403, 403, 403, 403, 400, 403],
        ),
        ("GET", BUCKET, [200, 403, 200, 200, 403, 200, 200]),
        (
            "GET",
            "/pools/default/b/default",
            [200, 403, 200, 200, 403, 200, 200],
        ),
        (
            "GET",
            "/pools/default/b/missing",
            [403, 403, 403, 404, 403, 404, 404],
        ),
        ("POST", BUCKET, [403, 403, 200, 403, 403, 200, 403]),
        ("POST", &flush, [403, 403, 400, 403, 403, 400, 403]),
        ("POST", &scopes, [403, 403, 400, 403, 403, 400, 403]),
        (
            "POST",
            "/pools/default/buckets",
            [403, 403, 403, 403, 403, 400, 403],
        ),
        (
            "DELETE",
            "/pools/default/buckets/missing",
            [403, 403, 403, 403, 403, 404, 403],
        ),
        (
            "GET",
            "/settings/rbac/users",
            [403, 403, 403, 200, 403, 403, 200],
        ),
        ("DELETE", "/settings/rbac/users/local/root", [403; 7]),
        (
            "GET",
            "/settings/rbac/groups",
            [403, 403, 403, 200, 403, 403, 200],
        ),
        (
            "DELETE",
            "/settings/rbac/groups/g",
            [403, 403, 403, 403, 403, 403, 404],
        ),
        (
            "GET",
            "/kedge/timings/default",
            [403, 403, 200, 200, 403, 200, 200],
        ),
        ("GET", "/metrics", [403, 403, 403, 200, 403, 200, 200]),
        ("GET", "/kedge/stats", [403, 403, 403, 200, 403, 200, 200]),
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

/// A user who was taken out of a group by a PUT without `groups` stayed in it, and kept its privileges: what was not given
/// stayed. SDKs leave out what is empty.
#[test]
fn put_replaces_a_user_or_group() {
    let server = Server::start();
    let change = |method: &str, path: &str, form: &str| {
        let path = format!("/settings/rbac/{path}");
        server
            .connect()
            .request(method, &path, form)
            .is(200, "\"\"");
    };
    let seen = |path: &str| server.get(&format!("/settings/rbac/{path}")).json();
    change(
        "PUT",
        "groups/ops",
        "description=d&roles=ro_admin&ldap_group_ref=r",
    );
    let all = "password=love+lace&name=Ada&roles=data_reader[default]&groups=ops";
    change("PUT", "users/local/ada", all);
    let before = seen("users/local/ada");
    assert_eq!(
        (&before["name"], &before["groups"]),
        (&"Ada".into(), &serde_json::json!(["ops"]))
    );

    change("PUT", "users/local/ada", "roles=data_writer[default]");
    let ada = seen("users/local/ada");
    assert_eq!(
        (&ada["name"], &ada["groups"]),
        (&"".into(), &serde_json::json!([]))
    );
    assert_eq!(ada["roles"].as_array().unwrap().len(), 1, "{ada}");
    assert_eq!(ada["roles"][0]["role"], "data_writer");
    assert_eq!(ada["password_change_date"], before["password_change_date"]);
    let mut herself = server.connect_as("ada", "love lace");
    assert_eq!(
        herself.request("GET", USERS, "").status,
        403,
        "no rights of the group"
    );

    // A change of a part leaves the rest.
    change("PATCH", "users/local/ada", "name=A.&groups=ops");
    change("PATCH", "users/local/ada", "password=lace+love");
    let ada = seen("users/local/ada");
    assert_eq!(
        (&ada["name"], &ada["groups"]),
        (&"A.".into(), &serde_json::json!(["ops"]))
    );
    let mut herself = server.connect_as("ada", "lace love");
    assert_eq!(herself.request("GET", USERS, "").status, 200);
    let nobody = server
        .connect()
        .request("PATCH", &format!("{USERS}/local/bob"), "roles=");
    nobody.is(404, "\"Unknown user.\"");

    change("PATCH", "groups/ops", "description=e");
    assert_eq!(seen("groups/ops")["roles"][0]["role"], "ro_admin");
    change("PUT", "groups/ops", "description=f");
    let ops = seen("groups/ops");
    assert_eq!(
        (&ops["description"], &ops["roles"]),
        (&"f".into(), &serde_json::json!([]))
    );
    assert_eq!(herself.request("GET", USERS, "").status, 403);
}

/// An administrator could remove the user by which nodes of a cluster log in to each other, or give it another password: all
/// nodes were cut off from each other then.
#[test]
fn server_user_names_are_reserved() {
    let mut users = UserStore::new().unwrap();
    for user in ["root", CLUSTER_USER] {
        users.add(user, "secret", Roles::admin(), 1).unwrap();
    }
    let server = Server::start_for(users);
    for (method, path, form) in [
        ("DELETE", "users/local/kedge.cluster", ""),
        (
            "PUT",
            "users/local/kedge.cluster",
            "password=other&roles=ro_admin",
        ),
        ("PATCH", "users/local/kedge.cluster", "password=other"),
        (
            "PUT",
            "users/local/kedge.whatever",
            "password=other&roles=admin",
        ),
        ("DELETE", "users/local/kedge.whatever", ""),
        ("PUT", "groups/kedge.nodes", "roles=admin"),
    ] {
        let mut root = server.connect();
        let reply = root.request(method, &format!("/settings/rbac/{path}"), form);
        assert_eq!(reply.status, 400, "{method} {path}: {reply:?}");
        let said = reply.json()["errors"]["_"].to_string();
        assert!(said.contains("reserved"), "{method} {path}: {said}");
    }
    let mut node = server.connect_as(CLUSTER_USER, "secret");
    let reply = node.request("POST", "/controller/changePassword", "password=other");
    assert_eq!(reply.status, 400, "{reply:?}");
    assert_eq!(
        node.request("GET", "/whoami", "").json()["roles"][0]["role"],
        "admin"
    );
    // What is not people's to manage is not shown to them, either.
    let unknown = server.get(&format!("{USERS}/local/{CLUSTER_USER}"));
    unknown.is(404, "\"Unknown user.\"");
    put(&server, "kedge", "password=x&roles=ro_admin").is(200, "\"\"");
}

/// A role for a bucket that was not there was accepted: a slip of the pen left the user without rights, until somebody made a
/// bucket of that name.
#[test]
fn roles_must_name_existing_buckets() {
    let server = Server::start();
    let make = |path: &str, form: &str| {
        let path = format!("/pools/default/buckets/default/scopes{path}");
        assert_eq!(server.post(&path, form).status, 200);
    };
    make("", "name=shop");
    make("/shop/collections", "name=orders");
    for (roles, undefined) in [
        ("data_reader[default:shop:orders],data_writer[*],admin", ""),
        ("data_reader[default:*:*],scope_admin[default:shop]", ""),
        ("data_reader[no-such-bucket]", "data_reader[no-such-bucket]"),
        (
            "admin,data_reader[default:shop:nope]",
            "data_reader[default:shop:nope]",
        ),
        (
            "data_reader[default:nope],data_writer[x:y]",
            "data_reader[default:nope],data_writer[x:y]",
        ),
        ("king", "king"),
    ] {
        for (path, whom) in [("users/local/ada", "user"), ("groups/g", "group")] {
            let form = format!("password=lovelace&roles={roles}");
            let mut root = server.connect();
            let reply = root.request("PUT", &format!("/settings/rbac/{path}"), &form);
            if undefined.is_empty() {
                reply.is(200, "\"\"");
                continue;
            }
            assert_eq!(reply.status, 400, "{roles}: {reply:?}");
            let text = format!(
                "Cannot assign roles to {whom} because the following roles are unknown, malformed or role parameters are \
                 undefined: [{undefined}]"
            );
            assert_eq!(reply.json()["errors"]["roles"], text, "{roles}");
        }
    }
    // A change of an existing user or group is checked likewise, and changes nothing when it is refused.
    for path in ["users/local/ada", "groups/g"] {
        let path = format!("/settings/rbac/{path}");
        let before = server.get(&path).json();
        let mut root = server.connect();
        for roles in [
            "data_reader[no-such-bucket]",
            "king",
            "data_reader[default:shop:nope]",
        ] {
            let reply = root.request("PATCH", &path, &format!("roles={roles}"));
            assert_eq!(reply.status, 400, "{path} {roles}: {reply:?}");
            assert!(reply.json()["errors"]["roles"].is_string(), "{reply:?}");
        }
        assert_eq!(server.get(&path).json(), before);
        let valid = root.request("PATCH", &path, "roles=data_reader[default:shop:orders]");
        assert_eq!(valid.status, 200, "{path}: {valid:?}");
        assert_ne!(server.get(&path).json(), before);
    }
}

/// Passwords of one character passed.
#[test]
fn passwords_have_a_minimum_length() {
    let server = Server::start_with_passwords_of(6);
    let says = |reply: &super::Reply| {
        assert_eq!(reply.status, 400, "{reply:?}");
        let said = reply.json()["errors"]["password"].clone();
        assert_eq!(said, "The password must be at least 6 characters long.");
    };
    says(&put(&server, "ada", "password=12345&roles=ro_admin"));
    // Characters count, not bytes.
    says(&put(
        &server,
        "ada",
        "password=%C3%A9%C3%A9%C3%A9%C3%A9%C3%A9&roles=",
    ));
    put(&server, "ada", "password=123456&roles=ro_admin").is(200, "\"\"");
    let patch = |form: &str| {
        let path = format!("{USERS}/local/ada");
        server.connect().request("PATCH", &path, form)
    };
    says(&patch("password=1"));
    patch("name=Ada").is(200, "\"\"");
    let mut ada = server.connect_as("ada", "123456");
    says(&ada.request("POST", "/controller/changePassword", "password=x"));
    assert_eq!(ada.request("GET", "/whoami", "").status, 200);
}

#[test]
fn policy_of_passwords_holds_for_new_passwords_and_after_it_is_set() {
    const POLICY: &str = "/settings/passwordPolicy";
    let server = Server::start_with_passwords_of(6);
    let initial = server.get(POLICY).json();
    assert_eq!(initial["minLength"], 6);
    assert_eq!(initial["enforceDigits"], false);
    let weak = "password=abcdef&roles=ro_admin";
    put(&server, "ada", weak).is(200, "\"\"");
    let set = |form: &str| server.connect().request("POST", POLICY, form);
    assert_eq!(set("enforceDigits=true").status, 400, "it needs a length");
    let reply = set("minLength=4&enforceDigits=true");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(server.get(POLICY).json(), reply.json());
    let refused = put(&server, "bob", weak);
    assert_eq!(refused.status, 400, "{refused:?}");
    let why = refused.json()["errors"]["password"].clone();
    assert_eq!(why, "The password must contain a digit.");
    put(&server, "bob", "password=abc1&roles=ro_admin").is(200, "\"\"");
    // An existing password stays, and its user may not change the policy.
    let mut ada = server.connect_as("ada", "abcdef");
    assert_eq!(ada.request("POST", POLICY, "minLength=1").status, 403);
}
