//! The documents that SDKs read, field by field.

use serde_json::Value;

use super::{KV_PORT, Server, VBUCKETS};
use crate::documents::DocumentComposer;

#[track_caller]
fn has(document: &Value, pointers: &[&str]) {
    for pointer in pointers {
        let found = document
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{pointer} in {document}"));
        assert!(!found.is_null() && *found != "", "{pointer} is {found}");
    }
}

#[test]
fn pools() {
    let server = Server::start();
    let pools = server.get("/pools").json();
    has(&pools, &["/uuid", "/pools/0/name", "/pools/0/uri"]);
    assert_eq!(
        pools["implementationVersion"],
        kedge_cluster::CLAIMED_VERSION
    );
    assert_eq!(pools["isEnterprise"], true);
    assert_eq!(pools["isAdminCreds"], true);
}

#[test]
fn the_default_pool() {
    let server = Server::start();
    let pool = server.get("/pools/default").json();
    has(
        &pool,
        &[
            "/name",
            "/nodes/0/hostname",
            "/nodes/0/version",
            "/nodes/0/services/0",
            "/nodes/0/memoryTotal",
            "/nodes/0/memoryFree",
            "/nodes/0/nodeUUID",
            "/storageTotals/ram/total",
            "/storageTotals/hdd/free",
            "/buckets/uri",
        ],
    );
    assert_eq!(pool["clusterName"], "");
    assert_eq!(pool["balanced"], true);
    let node = &pool["nodes"][0];
    assert_eq!(node["status"], "healthy");
    assert_eq!(node["clusterMembership"], "active");
    assert_eq!(node["clusterCompatibility"], 524_288);
    assert_eq!(node["thisNode"], true);
    assert_eq!(node["ports"]["direct"], KV_PORT);
    assert!(node["uptime"].is_string(), "{node}");
    assert_eq!(node["hostname"], server.address.to_string());
    let nodes = server.get("/pools/nodes").json();
    assert_eq!(
        nodes["nodes"][0]["configuredHostname"],
        server.address.to_string()
    );
}

#[test]
fn a_bucket() {
    let server = Server::start();
    let bucket = server.get("/pools/default/buckets/default").json();
    has(
        &bucket,
        &[
            "/uuid",
            "/uri",
            "/streamingUri",
            "/nodes/0/version",
            "/nodes/0/services",
        ],
    );
    assert_eq!(bucket["name"], "default");
    assert_eq!(bucket["bucketType"], "membase");
    assert_eq!(bucket["nodeLocator"], "vbucket");
    assert_eq!(bucket["storageBackend"], "couchstore");
    assert_eq!(bucket["replicaNumber"], 0);
    assert_eq!(bucket["replicaIndex"], false);
    assert_eq!(bucket["quota"]["ram"], 64 << 20);
    assert_eq!(bucket["quota"]["rawRAM"], 64 << 20);
    assert_eq!(bucket["maxTTL"], 0);
    assert_eq!(bucket["evictionPolicy"], "valueOnly");
    assert_eq!(bucket["durabilityMinLevel"], "none");
    assert_eq!(bucket["conflictResolutionType"], "seqno");
    assert_eq!(bucket["compressionMode"], "passive");
    assert_eq!(bucket["numVBuckets"], VBUCKETS);
    let at = |name: &str| format!("/pools/default/buckets/default/controller/{name}");
    assert_eq!(
        bucket["controllers"],
        serde_json::json!({
            "compactAll": at("compactBucket"),
            "compactDB": at("compactDatabases"),
            "purgeDeletes": at("unsafePurgeBucket"),
        })
    );
    assert_eq!(bucket["nodes"][0]["status"], "healthy");
    assert_eq!(bucket["nodes"][0]["hostname"], server.address.to_string());
    assert_eq!(bucket["nodes"][0]["ports"]["direct"], KV_PORT);
    assert_eq!(bucket["bucketCapabilities"][0], "collections");
    assert_eq!(
        bucket["vBucketServerMap"]["vBucketMap"],
        serde_json::json!([[0], [0], [0], [0]])
    );
    let list = server.get("/pools/default/buckets").json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["uuid"], bucket["uuid"]);
}

#[test]
fn terse_documents_equal_the_cluster_map() {
    let server = Server::start();
    let cluster = server.registry.cluster();
    let config = cluster.bucket_config("default", "127.0.0.1").unwrap();
    let terse = server.get("/pools/default/b/default");
    terse.is(200, std::str::from_utf8(&config.json).unwrap());
    assert_eq!(terse.header("content-type"), Some("application/json"));
    let global = cluster.global_config("127.0.0.1");
    server
        .get("/pools/default/nodeServices")
        .is(200, std::str::from_utf8(&global.json).unwrap());
    let info = server.get("/pools/default/terseClusterInfo").json();
    has(
        &info,
        &[
            "/clusterUUID",
            "/nodesExt/0/services/kv",
            "/clusterCompatVersion",
        ],
    );
}

#[test]
fn bucket_uuid_in_the_query_must_match() {
    let server = Server::start();
    let uuid = server
        .registry
        .get("default")
        .unwrap()
        .config()
        .uuid
        .clone();
    for path in ["/pools/default/b/default", "/pools/default/buckets/default"] {
        assert_eq!(
            server.get(&format!("{path}?bucket_uuid={uuid}")).status,
            200
        );
        assert_eq!(
            server.get(&format!("{path}?bucket_uuid=0{uuid}")).status,
            404
        );
    }
}

#[test]
fn cluster_can_be_renamed() {
    let server = Server::start();
    let before = server.registry.cluster().revision();
    server
        .post("/pools/default", "clusterName=my+cluster")
        .is(200, "");
    assert!(server.registry.cluster().revision() > before);
    assert_eq!(
        server.get("/pools/default").json()["clusterName"],
        "my cluster"
    );
    assert_eq!(
        server.get("/pools/default/nodeServices").json()["clusterName"],
        "my cluster"
    );
    assert_eq!(server.post("/pools/default", "clusterName=%00").status, 400);
    assert_eq!(server.post("/pools/default", "memoryQuota=1").status, 400);
}

#[test]
fn small_things() {
    let server = Server::start();
    server.get("/pools/default/tasks").is(200, "[]");
    let whoami = server.get("/whoami").json();
    assert_eq!(whoami["id"], "root");
    assert_eq!(whoami["domain"], "local");
    assert_eq!(whoami["roles"][0]["role"], "admin");
}

#[test]
fn loading_bucket_is_not_healthy() {
    let server = Server::start();
    let parts = super::parts(
        &server.registry,
        &server.pools,
        server.dir.path().to_owned(),
    );
    let mut facts = parts.buckets.get("default").unwrap();
    facts.loading = true;
    let checks = kedge_node::password_checks::PasswordChecks::start(&server.pools).unwrap();
    let checks = std::sync::Arc::new(checks);
    let state = crate::HttpState::new(parts, checks);
    let cluster = server.registry.cluster().snapshot();
    let composer = DocumentComposer {
        state: &state,
        cluster: &cluster,
        host: "::1",
    };
    let bucket = serde_json::to_value(composer.bucket(&facts)).unwrap();
    assert_eq!(bucket["nodes"][0]["status"], "warmup");
    let hostname = bucket["nodes"][0]["hostname"].as_str().unwrap();
    assert!(hostname.starts_with("[::1]:"), "{hostname}");
}

/// Clients ask which nodes have a bucket, and each for its figures; both were 404.
#[test]
fn nodes_of_a_bucket_and_their_figures() {
    let server = Server::start();
    let at = "/pools/default/buckets/default/nodes";
    let bucket = server.get("/pools/default/buckets/default").json();
    assert_eq!(bucket["stats"]["nodeStatsListURI"], at);
    let hostname = server.address.to_string();
    let uri = format!("{at}/{}", hostname.replace(':', "%3A"));
    let entry = serde_json::json!({
        "hostname": hostname, "uri": uri, "stats": {"uri": format!("{uri}/stats")},
    });
    let servers = serde_json::json!({ "servers": [entry] });
    assert_eq!(server.get(at).json(), servers);
    let node = server.get(&uri).json();
    assert_eq!(
        (&node["bucketName"], &node["hostname"]),
        (&"default".into(), &entry["hostname"])
    );
    for uri in [&uri, &format!("{at}/{hostname}")] {
        let stats = server.get(&format!("{uri}/stats")).json();
        assert_eq!(stats["hostname"], hostname);
        assert_eq!(
            stats["op"]["samples"]["curr_items"],
            serde_json::json!([0.0])
        );
        assert_eq!(
            stats["op"]["samples"]["timestamp"][0],
            stats["op"]["lastTStamp"]
        );
        assert!(stats["op"]["lastTStamp"].as_u64() > Some(1_577_000_000_000));
    }
    let missing = "Requested resource not found.";
    server
        .get(&format!("{at}/10.0.0.1:8091/stats"))
        .is(404, missing);
    server.get(&format!("{at}/10.0.0.1:8091")).is(404, missing);
    server
        .get("/pools/default/buckets/none/nodes")
        .is(404, missing);
    let form = "password=love%20lace&roles=data_reader[default]";
    let made = server
        .connect()
        .request("PUT", "/settings/rbac/users/local/ada", form);
    made.is(200, "\"\"");
    let mut ada = server.connect_as("ada", "love lace");
    assert_eq!(ada.request("GET", at, "").status, 200);
    assert_eq!(ada.request("GET", &format!("{uri}/stats"), "").status, 403);
}
