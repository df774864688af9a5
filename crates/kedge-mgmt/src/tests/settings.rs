//! Settings of buckets: what is shown of them, what changes, and in which words the rest is refused.

use serde_json::{Value, json};

use super::Server;

const BUCKETS: &str = "/pools/default/buckets";
const DEFAULT: &str = "/pools/default/buckets/default";

/// Every setting that can be another, beside what a bucket has by itself: (field, pointer in the document, value of the
/// form, value of the document).
fn settings() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    vec![
        ("ramQuotaMB", "/quota/rawRAM", "128", json!(128 << 20)),
        ("ramQuota", "/quota/rawRAM", "192", json!(192 << 20)),
        ("replicaNumber", "/replicaNumber", "2", json!(2)),
        (
            "evictionPolicy",
            "/evictionPolicy",
            "fullEviction",
            json!("fullEviction"),
        ),
        (
            "compressionMode",
            "/compressionMode",
            "active",
            json!("active"),
        ),
        (
            "minCompressionRatio",
            "/minCompressionRatio",
            "1.5",
            json!(1.5),
        ),
        ("maxTTL", "/maxTTL", "3600", json!(3_600)),
        (
            "flushEnabled",
            "/controllers/flush",
            "1",
            json!(format!("{DEFAULT}/controller/doFlush")),
        ),
        (
            "durabilityMinLevel",
            "/durabilityMinLevel",
            "majorityAndPersistActive",
            json!("majorityAndPersistActive"),
        ),
        (
            "durabilityImpossibleFallback",
            "/durabilityImpossibleFallback",
            "fallbackToActiveAck",
            json!("fallbackToActiveAck"),
        ),
        ("memoryLowWatermark", "/memoryLowWatermark", "60", json!(60)),
        (
            "memoryHighWatermark",
            "/memoryHighWatermark",
            "90",
            json!(90),
        ),
        (
            "warmupBehavior",
            "/warmupBehavior",
            "blocking",
            json!("blocking"),
        ),
        (
            "accessScannerEnabled",
            "/accessScannerEnabled",
            "false",
            json!(false),
        ),
    ]
}

#[test]
fn each_bucket_setting_changes_alone_and_is_shown() {
    let server = Server::start();
    let mut expected = server.get(DEFAULT).json();
    let mut client = server.connect();
    for (field, pointer, value, shown) in settings() {
        let form = format!("{field}={value}");
        client.request("POST", DEFAULT, &form).is(200, "");
        let mut now = server.get(DEFAULT).json();
        assert_eq!(now.pointer(pointer), Some(&shown), "{form}");
        // Nothing else is another; what moves by itself and what follows from it is left out.
        for document in [&mut now, &mut expected] {
            for (part, member) in [("quota", "ram"), ("controllers", "flush")] {
                if !pointer.ends_with(member) {
                    continue;
                }
                document[part][member].take();
            }
            document["basicStats"].take();
            document["nodes"].take();
            document["quota"]["ram"].take();
            document["vBucketServerMap"].take();
            *document = without(document, pointer);
        }
        assert_eq!(now, expected, "{form}");
        expected = server.get(DEFAULT).json();
    }
}

/// The document without what `pointer` points to.
fn without(document: &Value, pointer: &str) -> Value {
    let mut document = document.clone();
    let (parent, member) = pointer.rsplit_once('/').unwrap();
    let parent = document.pointer_mut(parent).unwrap();
    parent.as_object_mut().unwrap().remove(member);
    document
}

#[test]
fn new_bucket_has_the_settings_of_its_form() {
    let server = Server::start();
    let fields: Vec<String> = settings()
        .iter()
        .map(|(field, _, value, _)| format!("{field}={value}"))
        .collect();
    let form = format!(
        "name=b&bucketType=couchbase&storageBackend=couchstore&numVBuckets=4&conflictResolutionType=lww&{}",
        fields.join("&")
    );
    server.post(BUCKETS, &form).is(202, "");
    let bucket = server.get(&format!("{BUCKETS}/b")).json();
    for (field, pointer, _, shown) in settings() {
        match field {
            // Its newer name goes first.
            "ramQuotaMB" => {}
            "flushEnabled" => assert!(bucket.pointer(pointer).is_some()),
            _ => assert_eq!(bucket.pointer(pointer), Some(&shown), "{field}"),
        }
    }
    assert_eq!(bucket["conflictResolutionType"], "lww");
    assert_eq!(bucket["numVBuckets"], 4);
    assert_eq!(bucket["autoCompactionSettings"], false);
    assert!(bucket.get("purgeInterval").is_none());
}

#[test]
fn own_compaction_settings_are_shown_and_reverted() {
    let server = Server::start();
    let own = "autoCompactionDefined=true&parallelDBAndViewCompaction=false&\
               databaseFragmentationThreshold%5Bpercentage%5D=47&purgeInterval=1.5";
    server.post(DEFAULT, own).is(200, "");
    let bucket = server.get(DEFAULT).json();
    let settings = &bucket["autoCompactionSettings"];
    let threshold = &settings["databaseFragmentationThreshold"];
    assert_eq!(threshold["percentage"], 47);
    assert_eq!(threshold["size"], "undefined");
    assert_eq!(bucket["purgeInterval"], 1.5);
    let period = [
        "fromHour]=22",
        "fromMinute]=0",
        "toHour]=5",
        "toMinute]=30",
        "abortOutside]=true",
    ];
    let period = period.map(|it| format!("&allowedTimePeriod[{it}"));
    let own = format!(
        "autoCompactionDefined=true&parallelDBAndViewCompaction=false&\
         databaseFragmentationThreshold[size]=1000000000{}",
        period.concat()
    );
    server.post(DEFAULT, &own).is(200, "");
    let settings = &server.get(DEFAULT).json()["autoCompactionSettings"];
    assert_eq!(
        settings["databaseFragmentationThreshold"],
        json!({ "percentage": "undefined", "size": 1_000_000_000 })
    );
    let period = json!({
        "fromHour": 22, "fromMinute": 0, "toHour": 5, "toMinute": 30, "abortOutside": true,
    });
    assert_eq!(settings["allowedTimePeriod"], period);
    server
        .post(
            DEFAULT,
            "autoCompactionDefined=true&parallelDBAndViewCompaction=false",
        )
        .is(200, "");
    let never = server.get(DEFAULT).json();
    assert_eq!(
        never["autoCompactionSettings"]["databaseFragmentationThreshold"]["percentage"],
        "undefined"
    );
    server
        .post(DEFAULT, "autoCompactionDefined=false")
        .is(200, "");
    assert_eq!(server.get(DEFAULT).json()["autoCompactionSettings"], false);
}

#[test]
fn invalid_form_lists_errors_by_field_and_changes_nothing() {
    let server = Server::start();
    let config = || {
        let bucket = server.registry.get("default").unwrap();
        kedge_bucket::BucketConfig::clone(&bucket.config())
    };
    let before = config();
    let mut client = server.connect();
    // (form, what is said)
    for (form, errors) in [
        (
            "maxTTL=2147483648&flushEnabled=1",
            json!({ "maxTTL": "Max TTL must be an integer between 0 and 2147483647" }),
        ),
        (
            "replicaNumber=4&compressionMode=on&replicaIndex=2",
            json!({
                "compressionMode": "compressionMode can be set to 'off', 'passive' or 'active'",
                "replicaIndex": "replicaIndex can only be 1 or 0",
                "replicaNumber": "Replica number larger than 3 is not supported.",
            }),
        ),
        (
            "conflictResolutionType=lww&maxTTL=9",
            json!({ "conflictResolutionType": "Conflict resolution type not allowed in update bucket" }),
        ),
        (
            "bucketType=x",
            json!({ "bucketType": "invalid bucket type" }),
        ),
        (
            "autoCompactionDefined=true",
            json!({ "parallelDBAndViewCompaction": "parallelDBAndViewCompaction is missing" }),
        ),
    ] {
        let reply = client.request("POST", DEFAULT, form);
        assert_eq!(reply.status, 400, "{form}");
        assert_eq!(reply.json(), json!({ "errors": errors }), "{form}");
        assert_eq!(config(), before, "{form}");
        let made = client.request("POST", BUCKETS, &format!("name=b&ramQuota=100&{form}"));
        let refused = made.status == 400 || form.starts_with("conflict");
        assert!(refused, "{form}: {made:?}");
    }
    // What nobody knows is ignored, and a form without anything changes nothing.
    for form in ["whatNobodyKnows=1", ""] {
        client.request("POST", DEFAULT, form).is(200, "");
    }
    assert_eq!(config(), before);
}

#[test]
fn validation_only_changes_nothing() {
    let server = Server::start();
    let mut client = server.connect();
    let new = format!("{BUCKETS}?just_validate=1");
    let nothing = r#"{"errors":{}}"#;
    client
        .request("POST", &new, "name=b&ramQuota=100")
        .is(200, nothing);
    assert!(server.registry.get("b").is_none());
    let taken = client.request("POST", &new, "name=Default&ramQuota=100");
    assert_eq!(taken.status, 400);
    assert!(taken.json()["errors"]["name"].is_string());
    let there = format!("{DEFAULT}?just_validate=1");
    client.request("POST", &there, "maxTTL=60").is(200, nothing);
    assert_eq!(client.request("POST", &there, "maxTTL=x").status, 400);
    assert_eq!(server.get(DEFAULT).json()["maxTTL"], 0);
}
