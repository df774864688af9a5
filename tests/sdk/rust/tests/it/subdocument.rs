use couchbase::collection::Collection;
use couchbase::durability_level::DurabilityLevel;
use couchbase::error::{Error, ErrorKind};
use couchbase::options::kv_options::{LookupInOptions, MutateInOptions, StoreSemantics};
use couchbase::results::kv_results::{LookupInResult, MutateInResult};
use couchbase::subdoc::lookup_in_specs::{ExistsSpecOptions, GetSpecOptions, LookupInSpec};
use couchbase::subdoc::macros::{LookupInMacros, MutateInMacros};
use couchbase::subdoc::mutate_in_specs::{
    InsertSpecOptions, MutateInSpec, RemoveSpecOptions, UpsertSpecOptions,
};
use serde_json::{Value, json};

use crate::{Setup, setup, want_content, want_error, within};

fn document() -> Value {
    json!({"name": "a", "tags": ["x", "y"], "address": {"city": "b"}, "visits": 5})
}

async fn stored() -> Setup {
    let setup = setup().await;
    within(setup.collection.upsert("key", document(), None))
        .await
        .unwrap();
    setup
}

async fn lookup(collection: &Collection, specs: &[LookupInSpec]) -> LookupInResult {
    within(collection.lookup_in("key", specs, None))
        .await
        .unwrap()
}

async fn mutate(
    collection: &Collection,
    specs: &[MutateInSpec],
    options: MutateInOptions,
) -> Result<MutateInResult, Error> {
    within(collection.mutate_in("key", specs, options)).await
}

fn upsert(path: &str, value: impl Into<Value>) -> MutateInSpec {
    MutateInSpec::upsert(path, value.into(), None).unwrap()
}

fn attribute(path: impl Into<String>) -> LookupInSpec {
    LookupInSpec::get(path, GetSpecOptions::new().xattr(true))
}

fn upsert_attribute(path: &str, value: impl Into<Value>) -> MutateInSpec {
    let options = UpsertSpecOptions::new().xattr(true).create_path(true);
    MutateInSpec::upsert(path, value.into(), options).unwrap()
}

fn expanded(by: &MutateInMacros) -> Value {
    serde_json::to_value(by).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lookup_in() {
    let setup = stored().await;
    let specs = [
        LookupInSpec::get("address.city", None),
        LookupInSpec::get("tags[-1]", None),
        LookupInSpec::exists("nothing", None),
        LookupInSpec::count("tags", None),
        LookupInSpec::get("nothing", None),
        LookupInSpec::get("name[0]", None),
    ];
    let found = lookup(&setup.collection, &specs).await;
    assert_eq!(found.content_as::<String>(0).unwrap(), "b");
    assert_eq!(found.content_as::<String>(1).unwrap(), "y");
    assert!(!found.exists(2).unwrap());
    assert_eq!(found.content_as::<u32>(3).unwrap(), 2);
    want_error(found.content_as::<Value>(4), ErrorKind::PathNotFound);
    want_error(found.content_as::<Value>(5), ErrorKind::PathMismatch);
    let read = within(setup.collection.get("key", None)).await.unwrap();
    assert_eq!(found.cas(), read.cas());

    let missing = setup.collection.lookup_in("nothing", &specs, None);
    want_error(within(missing).await, ErrorKind::DocumentNotFound);
    let missing = [upsert("a", 1)];
    let missing = setup.collection.mutate_in("nothing", &missing, None);
    want_error(within(missing).await, ErrorKind::DocumentNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutate_in() {
    let setup = stored().await;
    let path = InsertSpecOptions::new().create_path(true);
    let specs = [
        upsert("name", "c"),
        MutateInSpec::insert("a.b.c", json!({"d": 1}), path).unwrap(),
        MutateInSpec::replace("address.city", "e", None).unwrap(),
        MutateInSpec::array_append("tags", &["z"], None).unwrap(),
        MutateInSpec::array_prepend("tags", &["v", "w"], None).unwrap(),
        MutateInSpec::array_insert("tags[1]", &["i"], None).unwrap(),
        MutateInSpec::array_add_unique("tags", "u", None).unwrap(),
        MutateInSpec::increment("visits", 3, None).unwrap(),
    ];
    let none = MutateInOptions::new;
    let changed = mutate(&setup.collection, &specs, none()).await.unwrap();
    assert_eq!(changed.content_as::<u32>(7).unwrap(), 8);
    assert!(changed.mutation_token().is_some());
    let expected = json!({
        "name": "c",
        "tags": ["v", "i", "w", "x", "y", "z", "u"],
        "address": {"city": "e"},
        "visits": 8,
        "a": {"b": {"c": {"d": 1}}},
    });
    want_content(&setup.collection, "key", expected).await;
    let specs = [
        MutateInSpec::remove("address", None),
        MutateInSpec::remove("tags", None),
        MutateInSpec::decrement("visits", 10, None).unwrap(),
        MutateInSpec::remove("a.b", None),
    ];
    mutate(&setup.collection, &specs, none()).await.unwrap();
    let expected = json!({"name": "c", "visits": -2, "a": {}});
    want_content(&setup.collection, "key", expected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_changes_when_one_path_fails() {
    let setup = stored().await;
    let none = MutateInOptions::new;
    let specs = [
        upsert("name", "c"),
        MutateInSpec::insert("visits", 1, None).unwrap(),
    ];
    want_error(
        mutate(&setup.collection, &specs, none()).await,
        ErrorKind::PathExists,
    );
    let specs = [
        upsert("name", "c"),
        MutateInSpec::replace("nothing", 1, None).unwrap(),
    ];
    want_error(
        mutate(&setup.collection, &specs, none()).await,
        ErrorKind::PathNotFound,
    );
    want_content(&setup.collection, "key", document()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn semantics_cas_and_durability() {
    let setup = setup().await;
    let collection = &setup.collection;
    let insert = || MutateInOptions::new().store_semantics(StoreSemantics::Insert);
    mutate(collection, &[upsert("a", 1)], insert())
        .await
        .unwrap();
    // What this SDK makes of a document that is there.
    want_error(
        mutate(collection, &[upsert("a", 2)], insert()).await,
        ErrorKind::CasMismatch,
    );
    let durable = MutateInOptions::new()
        .store_semantics(StoreSemantics::Upsert)
        .durability_level(DurabilityLevel::PERSIST_TO_MAJORITY);
    let first = mutate(collection, &[upsert("a", 3)], durable)
        .await
        .unwrap();
    let cas = || MutateInOptions::new().cas(first.cas());
    mutate(collection, &[upsert("a", 4)], cas()).await.unwrap();
    want_error(
        mutate(collection, &[upsert("a", 5)], cas()).await,
        ErrorKind::CasMismatch,
    );
    want_content(collection, "key", json!({"a": 4})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_and_macros() {
    let setup = stored().await;
    let collection = &setup.collection;
    let specs = [
        upsert_attribute("meta.owner", "me"),
        upsert_attribute("stamp.cas", expanded(&MutateInMacros::CAS)),
        upsert_attribute("stamp.seqno", expanded(&MutateInMacros::SeqNo)),
        upsert_attribute("stamp.crc", expanded(&MutateInMacros::ValueCrc32c)),
        upsert("name", "c"),
    ];
    mutate(collection, &specs, MutateInOptions::new())
        .await
        .unwrap();
    let specs = [
        attribute("stamp"),
        attribute(LookupInMacros::Document),
        attribute(LookupInMacros::IsDeleted),
    ];
    let found = lookup(collection, &specs).await;
    let stamp: Value = found.content_as(0).unwrap();
    let document: Value = found.content_as(1).unwrap();
    let little = u64::from_str_radix(&stamp["cas"].as_str().unwrap()[2..], 16).unwrap();
    assert_eq!(little.swap_bytes(), found.cas());
    assert_eq!(stamp["seqno"], document["seqno"]);
    assert_eq!(stamp["crc"], document["value_crc32c"]);
    assert!(!found.content_as::<bool>(2).unwrap());

    // What replaces the body does not touch them.
    within(collection.replace("key", json!({}), None))
        .await
        .unwrap();
    let found = lookup(collection, &[attribute("meta.owner")]).await;
    assert_eq!(found.content_as::<String>(0).unwrap(), "me");
    let remove = [MutateInSpec::remove(
        "meta",
        RemoveSpecOptions::new().xattr(true),
    )];
    mutate(collection, &remove, MutateInOptions::new())
        .await
        .unwrap();
    let exists = LookupInSpec::exists("meta", ExistsSpecOptions::new().xattr(true));
    assert!(!lookup(collection, &[exists]).await.exists(0).unwrap());
    want_content(collection, "key", json!({})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn system_attributes_outlive_their_document() {
    let setup = stored().await;
    let collection = &setup.collection;
    let specs = [upsert_attribute("_sys", 1), upsert_attribute("user", 2)];
    mutate(collection, &specs, MutateInOptions::new())
        .await
        .unwrap();
    within(collection.remove("key", None)).await.unwrap();
    let specs = [attribute("_sys"), attribute("user")];
    want_error(
        within(collection.lookup_in("key", &specs, None)).await,
        ErrorKind::DocumentNotFound,
    );
    let deleted = LookupInOptions::new().access_deleted(true);
    let found = within(collection.lookup_in("key", &specs, deleted))
        .await
        .unwrap();
    assert_eq!(found.content_as::<u32>(0).unwrap(), 1);
    want_error(found.content_as::<u32>(1), ErrorKind::PathNotFound);
}
