use std::time::Duration;

use couchbase::collection::Collection;
use couchbase::error::ErrorKind;
use couchbase::options::kv_binary_options::{DecrementOptions, IncrementOptions};
use couchbase::options::kv_options::{
    GetOptions, InsertOptions, RemoveOptions, ReplaceOptions, UpsertOptions,
};
use couchbase::subdoc::lookup_in_specs::{GetSpecOptions, LookupInSpec};
use couchbase::transcoding;
use serde_json::json;

use crate::{exists, in_parallel, setup, until_gone, want_content, want_error, within};

const LARGEST: usize = 20 << 20;
const SECOND: Duration = Duration::from_secs(1);

async fn put_raw(
    collection: &Collection,
    key: &str,
    value: &[u8],
) -> Result<(), couchbase::error::Error> {
    let (value, flags) = transcoding::raw_binary::encode(value).unwrap();
    within(collection.upsert_raw(key, value, flags, None))
        .await
        .map(|_| ())
}

async fn want_raw(collection: &Collection, key: &str, wanted: &[u8]) {
    let read = within(collection.get(key, None)).await.unwrap();
    let (value, flags) = read.content_as_raw();
    assert!(
        transcoding::raw_binary::decode(value, flags).unwrap() == wanted,
        "{key}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn json_values() {
    let setup = setup().await;
    let values = json!([{"a": [1, 2.5, null, true, "ä\u{0}"]}, [], "text", 0, -1.5, true, null]);
    for (n, value) in values.as_array().unwrap().iter().enumerate() {
        let key = format!("key-{n}");
        within(setup.collection.upsert(&key, value, None))
            .await
            .unwrap();
        want_content(&setup.collection, &key, value.clone()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_values() {
    let setup = setup().await;
    let mut random = vec![0; 100_000];
    getrandom::fill(&mut random).unwrap();
    for value in [vec![], [0, 255].repeat(1000), random] {
        put_raw(&setup.collection, "key", &value).await.unwrap();
        want_raw(&setup.collection, "key", &value).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn insert_replace_remove() {
    let setup = setup().await;
    let collection = &setup.collection;
    want_error(
        within(collection.get("key", None)).await,
        ErrorKind::DocumentNotFound,
    );
    want_error(
        within(collection.replace("key", 0, None)).await,
        ErrorKind::DocumentNotFound,
    );
    want_error(
        within(collection.remove("key", None)).await,
        ErrorKind::DocumentNotFound,
    );
    within(collection.insert("key", 1, None)).await.unwrap();
    want_error(
        within(collection.insert("key", 2, None)).await,
        ErrorKind::DocumentExists,
    );
    within(collection.replace("key", 3, None)).await.unwrap();
    want_content(collection, "key", json!(3)).await;
    within(collection.remove("key", None)).await.unwrap();
    want_error(
        within(collection.get("key", None)).await,
        ErrorKind::DocumentNotFound,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn exists_and_its_cas() {
    let setup = setup().await;
    let collection = &setup.collection;
    assert!(!exists(collection, "key").await);
    let stored = within(collection.upsert("key", 1, None)).await.unwrap();
    let found = within(collection.exists("key", None)).await.unwrap();
    assert!(found.exists());
    assert_eq!(found.cas(), stored.cas());
    within(collection.remove("key", None)).await.unwrap();
    assert!(!exists(collection, "key").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn cas_conflicts() {
    let setup = setup().await;
    let collection = &setup.collection;
    let first = within(collection.upsert("key", 1, None))
        .await
        .unwrap()
        .cas();
    let replace =
        |value: u32, cas| collection.replace("key", value, ReplaceOptions::new().cas(cas));
    let second = within(replace(2, first)).await.unwrap().cas();
    assert!(second > first);
    want_error(within(replace(3, first)).await, ErrorKind::CasMismatch);
    let remove = |cas| collection.remove("key", RemoveOptions::new().cas(cas));
    want_error(within(remove(first)).await, ErrorKind::CasMismatch);
    want_content(collection, "key", json!(2)).await;
    within(remove(second)).await.unwrap();
    want_error(
        within(collection.get("key", None)).await,
        ErrorKind::DocumentNotFound,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn mutation_tokens_grow() {
    let setup = setup().await;
    let first = within(setup.collection.upsert("key", 1, None))
        .await
        .unwrap();
    let second = within(setup.collection.upsert("key", 2, None))
        .await
        .unwrap();
    let (first, second) = (
        first.mutation_token().unwrap(),
        second.mutation_token().unwrap(),
    );
    assert_eq!(first.partition_id(), second.partition_id());
    assert_eq!(first.partition_uuid(), second.partition_uuid());
    assert_ne!(first.partition_uuid(), 0);
    assert!(second.sequence_number() > first.sequence_number());
}

#[tokio::test(flavor = "multi_thread")]
async fn expiry_and_touch() {
    let setup = setup().await;
    let collection = &setup.collection;
    within(collection.upsert("upserted", 1, UpsertOptions::new().expiry(SECOND)))
        .await
        .unwrap();
    within(collection.insert("inserted", 1, InsertOptions::new().expiry(SECOND)))
        .await
        .unwrap();
    within(collection.upsert("touched", 1, None)).await.unwrap();
    within(collection.touch("touched", SECOND, None))
        .await
        .unwrap();
    within(collection.upsert("got", 1, None)).await.unwrap();
    let got = within(collection.get_and_touch("got", SECOND, None))
        .await
        .unwrap();
    assert_eq!(got.content_as::<u32>().unwrap(), 1);
    for key in ["upserted", "inserted", "touched", "got"] {
        until_gone(collection, key).await;
    }
    want_error(
        within(collection.touch("touched", SECOND, None)).await,
        ErrorKind::DocumentNotFound,
    );
    want_error(
        within(collection.get_and_touch("got", SECOND, None)).await,
        ErrorKind::DocumentNotFound,
    );
    within(collection.insert("inserted", 2, None))
        .await
        .unwrap();
    want_content(collection, "inserted", json!(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn preserve_expiry() {
    let setup = setup().await;
    let collection = &setup.collection;
    // In seconds of Unix time; this SDK says 1970 of what does not expire.
    let expiry = || async {
        let options = GetOptions::new().expiry(true);
        let found = within(collection.get("key", options)).await.unwrap();
        found.expiry_time().unwrap().timestamp()
    };
    let hour = UpsertOptions::new().expiry(SECOND * 3_600);
    within(collection.upsert("key", 1, hour)).await.unwrap();
    let expires = expiry().await;
    assert!(expires > 0);
    let options = UpsertOptions::new().preserve_expiry(true);
    within(collection.upsert("key", 2, options)).await.unwrap();
    want_content(collection, "key", json!(2)).await;
    assert_eq!(expiry().await, expires);
    within(collection.upsert("key", 3, None)).await.unwrap();
    assert_eq!(expiry().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn counters() {
    let setup = setup().await;
    let binary = setup.collection.binary();
    let increment = |options| within(binary.increment("key", options));
    let decrement = |delta| within(binary.decrement("key", DecrementOptions::new().delta(delta)));
    want_error(
        increment(IncrementOptions::new().delta(1)).await,
        ErrorKind::DocumentNotFound,
    );
    let options = IncrementOptions::new().delta(1).initial(10);
    assert_eq!(increment(options).await.unwrap().content(), 10);
    assert_eq!(
        increment(IncrementOptions::new().delta(5))
            .await
            .unwrap()
            .content(),
        15
    );
    assert_eq!(decrement(3).await.unwrap().content(), 12);
    assert_eq!(decrement(100).await.unwrap().content(), 0);
    want_content(&setup.collection, "key", json!(0)).await;

    within(setup.collection.upsert("text", "text", None))
        .await
        .unwrap();
    let failed = within(binary.increment("text", IncrementOptions::new().delta(1))).await;
    assert!(failed.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn append_and_prepend() {
    let setup = setup().await;
    let binary = setup.collection.binary();
    assert!(within(binary.append("key", b"x", None)).await.is_err());
    put_raw(&setup.collection, "key", b"middle").await.unwrap();
    within(binary.append("key", b"-end", None)).await.unwrap();
    within(binary.prepend("key", b"start-", None))
        .await
        .unwrap();
    want_raw(&setup.collection, "key", b"start-middle-end").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_client_compresses() {
    let setup = setup().await;
    let collection = &setup.collection;
    let text = b"compressible ".repeat(1_000);
    put_raw(collection, "key", &text).await.unwrap();
    let datatype = LookupInSpec::get("$document.datatype", GetSpecOptions::new().xattr(true));
    let stored = within(collection.lookup_in("key", &[datatype], None)).await;
    let datatype: Vec<String> = stored.unwrap().content_as(0).unwrap();
    assert_eq!(datatype, ["snappy"]);
    // The server inflates it before it appends.
    let appended = within(collection.binary().append("key", &text, None)).await;
    appended.unwrap();
    want_raw(collection, "key", &text.repeat(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large() {
    let setup = setup().await;
    let mut random = vec![0; LARGEST + 1];
    getrandom::fill(&mut random).unwrap();
    put_raw(&setup.collection, "key", &random[..LARGEST])
        .await
        .unwrap();
    want_error(
        put_raw(&setup.collection, "key", &random).await,
        ErrorKind::ValueTooLarge,
    );
    want_raw(&setup.collection, "key", &random[..LARGEST]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_documents() {
    let setup = setup().await;
    ten_thousand(&setup.collection).await;
}

/// Stores, reads and removes that many documents, many at a time.
pub async fn ten_thousand(documents: &Collection) {
    let collection = documents.clone();
    in_parallel(10_000, 100, move |n| {
        let collection = collection.clone();
        async move {
            let key = format!("key-{n}");
            within(collection.upsert(&key, json!({"n": n}), None))
                .await
                .unwrap();
            want_content(&collection, &key, json!({"n": n})).await;
        }
    })
    .await;
    let collection = documents.clone();
    in_parallel(10_000, 100, move |n| {
        let collection = collection.clone();
        async move {
            within(collection.remove(format!("key-{n}"), None))
                .await
                .unwrap();
        }
    })
    .await;
    assert!(!exists(documents, "key-0").await);
}
