//! Buckets come, change and go; collections cannot, yet.

use kedge_types::{DocKey, VbId};

use super::Server;

const BUCKETS: &str = "/pools/default/buckets";

#[test]
fn a_bucket_from_its_creation_to_its_end() {
    let server = Server::start();
    let before = server.registry.cluster().revision();
    let form = "name=b&bucketType=couchbase&ramQuotaMB=100&replicaNumber=1&flushEnabled=0&durabilityMinLevel=majority";
    server.post(BUCKETS, form).is(202, "");
    assert!(server.registry.cluster().revision() > before);
    server.registry.get("b").unwrap().wait_loaded().unwrap();
    let bucket = server.get(&format!("{BUCKETS}/b")).json();
    assert_eq!(bucket["replicaNumber"], 1);
    assert_eq!(bucket["durabilityMinLevel"], "majority");
    assert_eq!(bucket["numVBuckets"], 16);
    assert!(
        server
            .registry
            .cluster()
            .bucket_config("b", "::1")
            .is_some()
    );

    let again = server.post(BUCKETS, form);
    again.is(
        400,
        r#"{"errors":{"name":"Bucket with given name already exists"}}"#,
    );
    let wrong = server.post(BUCKETS, "name=&bucketType=memcached");
    assert_eq!(wrong.status, 400);
    let errors = wrong.json()["errors"].clone();
    assert_eq!(errors.as_object().unwrap().len(), 3, "{errors}");

    let flush = format!("{BUCKETS}/b/controller/doFlush");
    server
        .post(&flush, "")
        .is(400, r#"{"_":"Flush is disabled for the bucket"}"#);
    server
        .post(
            &format!("{BUCKETS}/b"),
            "ramQuotaMB=200&flushEnabled=1&maxTTL=60",
        )
        .is(200, "");
    let bucket = server.get(&format!("{BUCKETS}/b")).json();
    assert_eq!(bucket["quota"]["ram"], 200 << 20);
    assert_eq!(bucket["maxTTL"], 60);
    assert_eq!(bucket["durabilityMinLevel"], "majority");
    assert_eq!(bucket["controllers"]["flush"], flush);
    assert_eq!(
        server
            .post(&format!("{BUCKETS}/b"), "numVBuckets=32")
            .status,
        400
    );
    server.post(&flush, "").is(200, "");

    let mut client = server.connect();
    client
        .request("DELETE", &format!("{BUCKETS}/b"), "")
        .is(200, "");
    assert!(server.registry.get("b").is_none());
    for (method, path) in [
        ("GET", format!("{BUCKETS}/b")),
        ("POST", format!("{BUCKETS}/b")),
        ("DELETE", format!("{BUCKETS}/b")),
        ("POST", flush),
        ("GET", "/pools/default/b/b".to_owned()),
        ("GET", "/pools/default/bs/b".to_owned()),
        ("GET", "/pools/default/bucketsStreaming/b".to_owned()),
        ("GET", format!("{BUCKETS}/b/scopes")),
        ("GET", format!("{BUCKETS}/b/stats")),
        ("GET", "/kedge/timings/b".to_owned()),
    ] {
        let reply = client.request(method, &path, "");
        assert_eq!(
            (reply.status, reply.body.as_str()),
            (404, "Requested resource not found."),
            "{path}"
        );
    }
}

#[test]
fn a_flush_takes_the_documents() {
    let server = Server::start();
    let bucket = server.registry.get("default").unwrap();
    let key = DocKey::new(kedge_types::CollectionId::DEFAULT, b"k").unwrap();
    let ctx = server.registry.ctx();
    let write = kedge_bucket::Write {
        vb: VbId(0),
        key: &key,
        cas: kedge_types::Cas(0),
        durability: None,
        preserve_ttl: false,
        cookie: kedge_bucket::Cookie(0),
    };
    let mode = kedge_bucket::StoreMode::Set;
    bucket
        .store(
            ctx,
            &write,
            mode,
            b"v",
            kedge_types::Datatype::default(),
            0,
            0,
        )
        .unwrap();
    let items =
        || server.get(&format!("{BUCKETS}/default")).json()["basicStats"]["itemCount"].clone();
    assert_eq!(items(), 1);
    server
        .post(&format!("{BUCKETS}/default"), "flushEnabled=1")
        .is(200, "");
    server
        .post(&format!("{BUCKETS}/default/controller/doFlush"), "")
        .is(200, "");
    assert_eq!(items(), 0);
}

#[test]
fn names_are_decoded_once() {
    let server = Server::start();
    server
        .post(BUCKETS, "name=a%2541&ramQuotaMB=100&numVBuckets=1")
        .is(202, "");
    let bucket = server.get(&format!("{BUCKETS}/a%2541")).json();
    assert_eq!(bucket["name"], "a%41");
    assert_eq!(bucket["uri"], "/pools/default/buckets/a%2541");
    assert_eq!(server.get(&format!("{BUCKETS}/aA")).status, 404);
}

#[test]
fn collections() {
    let server = Server::start();
    let scopes = format!("{BUCKETS}/default/scopes");
    let manifest = server.get(&scopes).json();
    assert_eq!(manifest["uid"], "0");
    assert_eq!(manifest["scopes"][0]["collections"][0]["name"], "_default");
    // (method, path below scopes, form, status, part of what is said)
    for (method, path, form, status, says) in [
        ("POST", "", "name=s", 400, "not supported yet"),
        (
            "POST",
            "",
            "name=_default",
            400,
            "Scope with name \\\"_default\\\" already exists",
        ),
        (
            "DELETE",
            "/s",
            "",
            404,
            "Scope with name \\\"s\\\" is not found",
        ),
        ("DELETE", "/_default", "", 400, "not allowed"),
        (
            "POST",
            "/s/collections",
            "name=c",
            404,
            "Scope with name \\\"s\\\" is not found",
        ),
        (
            "POST",
            "/_default/collections",
            "name=c",
            400,
            "not supported yet",
        ),
        (
            "POST",
            "/_default/collections",
            "name=_default",
            400,
            "already exists",
        ),
        (
            "DELETE",
            "/s/collections/c",
            "",
            404,
            "Scope with name \\\"s\\\" is not found",
        ),
        (
            "DELETE",
            "/_default/collections/c",
            "",
            404,
            "Collection with name \\\"c\\\" in scope \\\"_default\\\" is not found",
        ),
        (
            "PATCH",
            "/_default/collections/_default",
            "maxTTL=1",
            400,
            "not supported yet",
        ),
        ("POST", "/@ensureManifest/0", "", 200, "{}"),
        ("POST", "/@ensureManifest/1f", "", 504, "no manifest"),
        ("POST", "/@ensureManifest/x", "", 400, "hexadecimal"),
    ] {
        let reply = server
            .connect()
            .request(method, &format!("{scopes}{path}"), form);
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        assert!(reply.body.contains(says), "{method} {path}: {reply:?}");
    }
}
