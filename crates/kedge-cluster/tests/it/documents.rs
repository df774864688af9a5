//! The JSON, field by field.

use expect_test::{Expect, expect};
use serde_json::Value;

use crate::{bucket, view};

fn check(json: &[u8], expected: &Expect) {
    let value: Value = serde_json::from_slice(json).expect("a config is JSON");
    expected.assert_eq(&serde_json::to_string_pretty(&value).expect("JSON serialises"));
}

#[test]
fn bucket_config() {
    let (view, _) = view();
    let config = view
        .bucket_config("default", "127.0.0.1")
        .expect("the bucket exists");
    check(
        &config.json,
        &expect![[r#"
            {
              "bucketCapabilities": [
                "collections",
                "durableWrite",
                "tombstonedUserXAttrs",
                "xattr",
                "subdoc.AccessDeleted",
                "subdoc.BinaryXattr",
                "subdoc.DocumentMacroSupport",
                "subdoc.ReplaceBodyWithXattr",
                "subdoc.ReplicaRead",
                "subdoc.ReviveDocument",
                "preserveExpiry",
                "cbhello",
                "touch",
                "cccp",
                "nodesExt",
                "rangeScan",
                "dcp",
                "dcp.IgnorePurgedTombstones"
              ],
              "bucketCapabilitiesVer": "",
              "bucketType": "membase",
              "clusterCapabilities": {},
              "clusterCapabilitiesVer": [
                1,
                0
              ],
              "clusterName": "",
              "clusterUUID": "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0",
              "collectionsManifestUid": "0",
              "name": "default",
              "nodeLocator": "vbucket",
              "nodes": [
                {
                  "hostname": "127.0.0.1:8091",
                  "ports": {
                    "direct": 11210
                  }
                }
              ],
              "nodesExt": [
                {
                  "hostname": "127.0.0.1",
                  "nodeUUID": "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0",
                  "serverGroup": "Group 1",
                  "services": {
                    "kv": 11210,
                    "mgmt": 8091
                  },
                  "thisNode": true
                }
              ],
              "prod": "server",
              "rev": 1,
              "revEpoch": 1,
              "streamingUri": "/pools/default/bucketsStreaming/default?bucket_uuid=1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b",
              "uri": "/pools/default/buckets/default?bucket_uuid=1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b",
              "uuid": "1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b",
              "vBucketServerMap": {
                "hashAlgorithm": "CRC",
                "numReplicas": 0,
                "serverList": [
                  "127.0.0.1:11210"
                ],
                "vBucketMap": [
                  [
                    0
                  ],
                  [
                    0
                  ],
                  [
                    0
                  ],
                  [
                    0
                  ]
                ]
              }
            }"#]],
    );
}

#[test]
fn global_config() {
    let (view, _) = view();
    check(
        &view.global_config("127.0.0.1").json,
        &expect![[r#"
            {
              "clusterCapabilities": {},
              "clusterCapabilitiesVer": [
                1,
                0
              ],
              "clusterName": "",
              "clusterUUID": "c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0c0",
              "nodesExt": [
                {
                  "hostname": "127.0.0.1",
                  "nodeUUID": "a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0",
                  "serverGroup": "Group 1",
                  "services": {
                    "kv": 11210,
                    "mgmt": 8091
                  },
                  "thisNode": true
                }
              ],
              "prod": "server",
              "rev": 1,
              "revEpoch": 1
            }"#]],
    );
}

/// Fields whose presence or absence makes official SDKs fail; see `docs/compat.md`.
#[test]
fn config_has_the_fields_that_sdks_require() {
    let (view, _) = view();
    let parse = |json: &[u8]| serde_json::from_slice::<Value>(json).expect("a config is JSON");
    let of_bucket = view
        .bucket_config("default", "10.0.0.7")
        .expect("the bucket exists");
    let of_bucket = parse(&of_bucket.json);
    let global = parse(&view.global_config("10.0.0.7").json);
    for pointer in [
        "/rev",
        "/name",
        "/nodeLocator",
        "/nodes/0/hostname",
        "/nodesExt/0/services/kv",
        "/nodesExt/0/services/mgmt",
        "/nodesExt/0/hostname",
        "/nodesExt/0/thisNode",
        "/nodesExt/0/nodeUUID",
        "/clusterCapabilitiesVer",
        "/clusterCapabilities",
        "/clusterName",
        "/clusterUUID",
        "/bucketCapabilitiesVer",
        "/vBucketServerMap/hashAlgorithm",
        "/vBucketServerMap/numReplicas",
        "/vBucketServerMap/serverList/0",
        "/vBucketServerMap/vBucketMap/3/0",
    ] {
        assert!(of_bucket.pointer(pointer).is_some(), "bucket: {pointer}");
    }
    for pointer in ["/name", "/uuid", "/nodeLocator", "/vBucketServerMap"] {
        assert!(global.pointer(pointer).is_none(), "global: {pointer}");
    }
    for pointer in [
        "/rev",
        "/revEpoch",
        "/nodesExt/0/services/kv",
        "/nodesExt/0/services/mgmt",
        "/clusterCapabilitiesVer",
        "/clusterCapabilities",
        "/clusterName",
        "/clusterUUID",
    ] {
        assert!(global.pointer(pointer).is_some(), "global: {pointer}");
    }
    assert_eq!(of_bucket["rev"], global["rev"]);
    for document in [of_bucket, global] {
        let text = document.to_string();
        assert!(!text.contains("$HOST"));
        assert!(!text.contains("appTelemetryPath"));
        // There are no views. SDKs that infer from it that a bucket is not ephemeral read `bucketType` first.
        assert!(!text.contains("couchapi"));
    }
}

#[test]
fn config_has_the_host_at_which_the_client_reached_the_server() {
    let (view, _) = view();
    // (host, nodesExt hostname, serverList, nodes hostname)
    for (host, bare, kv, mgmt) in [
        ("10.0.0.7", "10.0.0.7", "10.0.0.7:11210", "10.0.0.7:8091"),
        ("::1", "::1", "[::1]:11210", "[::1]:8091"),
        (
            "n0.example",
            "n0.example",
            "n0.example:11210",
            "n0.example:8091",
        ),
    ] {
        let config = view
            .bucket_config("default", host)
            .expect("the bucket exists");
        let value: Value = serde_json::from_slice(&config.json).expect("a config is JSON");
        assert_eq!(value["nodesExt"][0]["hostname"], bare);
        assert_eq!(value["vBucketServerMap"]["serverList"][0], kv);
        assert_eq!(value["nodes"][0]["hostname"], mgmt);
    }
    let mapped = "::ffff:10.0.0.7".parse().expect("an address");
    assert_eq!(kedge_cluster::host_text(mapped), "10.0.0.7");
}

#[test]
fn vbucket_map_has_a_chain_for_every_vbucket() {
    let (view, _) = view();
    for vbuckets in [1, 64, 1024, 2048, u16::MAX] {
        view.put_bucket(bucket("b", vbuckets)).expect("saved");
        let config = view.bucket_config("b", "::1").expect("the bucket exists");
        let value: Value = serde_json::from_slice(&config.json).expect("a config is JSON");
        let map = value["vBucketServerMap"]["vBucketMap"]
            .as_array()
            .expect("an array");
        assert_eq!(map.len(), usize::from(vbuckets));
        assert!(map.iter().all(|chain| *chain == serde_json::json!([0])));
    }
}

#[test]
fn compressed_config_equals_the_plain_one() {
    let (view, _) = view();
    let config = view.global_config("::1");
    let inflated = snap::raw::Decoder::new()
        .decompress_vec(&config.snappy)
        .expect("valid snappy");
    assert_eq!(inflated, &*config.json);
}

#[test]
fn bucket_names_are_escaped_only_in_paths() {
    let (view, _) = view();
    view.put_bucket(bucket("a%b", 1)).expect("saved");
    let config = view.bucket_config("a%b", "::1").expect("the bucket exists");
    let value: Value = serde_json::from_slice(&config.json).expect("a config is JSON");
    assert_eq!(value["name"], "a%b");
    let uri = value["uri"].as_str().expect("text");
    assert!(uri.starts_with("/pools/default/buckets/a%25b?"), "{uri}");
}
