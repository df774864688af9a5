//! Buckets come, change and go.

use kedge_types::{DocKey, VbId};

use super::Server;

const BUCKETS: &str = "/pools/default/buckets";

#[test]
fn bucket_life_cycle_over_rest() {
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
fn flush_removes_the_documents() {
    let server = Server::start();
    let bucket = server.registry.get("default").unwrap();
    let key = DocKey::new(kedge_types::CollectionId::DEFAULT, b"k").unwrap();
    let ctx = server.registry.ctx();
    let write = kedge_bucket::Write {
        vb: VbId(0),
        key: &key,
        cas: kedge_types::Cas(0),
        durability: None,
        new_cas: kedge_types::Cas(0),
        preserve_ttl: false,
        cookie: kedge_bucket::Cookie(0),
    };
    let mode = kedge_bucket::StoreMode::Set;
    bucket
        .documents()
        .store(
            ctx,
            &write,
            &kedge_bucket::StoreArgs {
                mode,
                value: b"v",
                datatype: kedge_types::Datatype::default(),
                flags: 0,
                expiry: 0,
            },
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
