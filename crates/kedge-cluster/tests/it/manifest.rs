//! Collection manifests: edits against a naive model, errors and names as tables, documents.

use std::collections::BTreeMap;

use expect_test::expect;
use kedge_cluster::{
    ManifestEdit, ManifestError, ManifestKeeper, ManifestNameProblem, WantedCollection,
    WantedManifest, WantedScope, check_manifest_name, manifest_json, manifest_rest_json,
    parse_manifest, parse_wanted_scopes,
};
use kedge_types::limits::{COLLECTIONS_MAX, MANIFEST_NAME_BYTES_MAX, SCOPES_MAX};
use kedge_types::{CollectionId, Manifest, ManifestUid, ScopeId};
use proptest::prelude::*;

fn create_scope(scope: &str) -> ManifestEdit {
    ManifestEdit::CreateScope {
        scope: scope.to_owned(),
    }
}

fn drop_scope(scope: &str) -> ManifestEdit {
    ManifestEdit::DropScope {
        scope: scope.to_owned(),
    }
}

fn create(scope: &str, collection: &str, max_ttl: Option<u32>) -> ManifestEdit {
    ManifestEdit::CreateCollection {
        scope: scope.to_owned(),
        collection: collection.to_owned(),
        max_ttl,
    }
}

fn modify(scope: &str, collection: &str, max_ttl: Option<u32>) -> ManifestEdit {
    ManifestEdit::ModifyCollection {
        scope: scope.to_owned(),
        collection: collection.to_owned(),
        max_ttl: Some(max_ttl),
    }
}

fn drop_collection(scope: &str, collection: &str) -> ManifestEdit {
    ManifestEdit::DropCollection {
        scope: scope.to_owned(),
        collection: collection.to_owned(),
    }
}

/// A keeper after these edits.
fn after(edits: &[ManifestEdit]) -> ManifestKeeper {
    edits.iter().fold(ManifestKeeper::default(), |keeper, it| {
        keeper.edit(it).expect("the edit is allowed")
    })
}

fn shop() -> ManifestKeeper {
    after(&[
        create_scope("shop"),
        create("shop", "orders", None),
        create("shop", "carts", Some(3600)),
        create("_default", "logs", Some(0)),
    ])
}

#[test]
fn manifest_edits_assign_ids_and_uids() {
    let keeper = shop();
    let manifest = keeper.manifest();
    assert_eq!(manifest.uid, ManifestUid(4));
    let ids: Vec<_> = manifest
        .collections()
        .map(|(scope, it)| (scope.id.0, scope.name.as_str(), it.id.0, it.name.as_str()))
        .collect();
    assert_eq!(
        ids,
        [
            (0, "_default", 0, "_default"),
            (0, "_default", 10, "logs"),
            (8, "shop", 8, "orders"),
            (8, "shop", 9, "carts"),
        ]
    );
    // What was dropped comes back as another.
    let again = [
        drop_scope("shop"),
        create_scope("shop"),
        create("shop", "orders", None),
    ];
    let keeper = again.iter().fold(keeper, |keeper, it| {
        keeper.edit(it).expect("the edit is allowed")
    });
    let manifest = keeper.manifest();
    assert_eq!(manifest.uid, ManifestUid(7));
    assert_eq!(
        manifest.scope(ScopeId(9)).map(|it| it.name.as_str()),
        Some("shop")
    );
    let (scope, orders) = manifest.collection(CollectionId(11)).expect("it is there");
    assert_eq!((scope.id, orders.name.as_str()), (ScopeId(9), "orders"));
    assert_eq!(manifest.collections().count(), 3);
}

#[test]
fn manifest_edit_without_change_keeps_the_uid() {
    let keeper = shop();
    for edit in [
        modify("shop", "carts", Some(3600)),
        ManifestEdit::ModifyCollection {
            scope: "shop".to_owned(),
            collection: "carts".to_owned(),
            max_ttl: None,
        },
        modify("shop", "orders", None),
    ] {
        assert_eq!(keeper.edit(&edit).as_ref(), Ok(&keeper));
    }
    let changed = keeper
        .edit(&modify("shop", "carts", None))
        .expect("the edit is allowed");
    assert_eq!(changed.uid(), ManifestUid(5));
    let (_, carts) = changed
        .manifest()
        .collection(CollectionId(9))
        .expect("it is there");
    assert_eq!(carts.max_ttl, None);
}

#[test]
fn refusals() {
    let keeper = shop();
    for (edit, expected) in [
        (
            create_scope("shop"),
            "Scope with name \"shop\" already exists",
        ),
        (
            create_scope("_default"),
            "Scope with name \"_default\" already exists",
        ),
        (create_scope("_x"), "First character must not be _ or %"),
        (drop_scope("none"), "Scope with name \"none\" is not found"),
        (
            drop_scope("_default"),
            "Deleting _default scope is not allowed",
        ),
        (
            create("none", "c", None),
            "Scope with name \"none\" is not found",
        ),
        (
            create("shop", "carts", None),
            "Collection with name \"carts\" in scope \"shop\" already exists",
        ),
        (
            create("shop", "_default", None),
            "First character must not be _ or %",
        ),
        (
            create("shop", "a b", None),
            "Can only contain characters A-Z, a-z, 0-9 and the following symbols _ - %",
        ),
        (
            modify("shop", "none", None),
            "Collection with name \"none\" in scope \"shop\" is not found",
        ),
        (
            drop_collection("_default", "carts"),
            "Collection with name \"carts\" in scope \"_default\" is not found",
        ),
        (
            drop_collection("none", "carts"),
            "Scope with name \"none\" is not found",
        ),
    ] {
        let refused = keeper.edit(&edit);
        let text = refused.expect_err("it is refused").to_string();
        assert_eq!(text, expected, "{edit:?}");
    }
}

/// The default collection can be dropped, and never comes back.
#[test]
fn dropped_default_collection_cannot_be_recreated() {
    let without = after(&[drop_collection("_default", "_default")]);
    assert_eq!(without.manifest().collections().count(), 0);
    let again = without.edit(&create("_default", "_default", None));
    assert_eq!(
        again,
        Err(ManifestError::Name(ManifestNameProblem::FirstCharacter))
    );
}

#[test]
fn names() {
    let long = "a".repeat(MANIFEST_NAME_BYTES_MAX);
    let longer = format!("{long}a");
    for (name, expected) in [
        ("a", Ok(())),
        ("A-Z_09%", Ok(())),
        ("-", Ok(())),
        ("0", Ok(())),
        (&long, Ok(())),
        (&longer, Err(ManifestNameProblem::Length)),
        ("", Err(ManifestNameProblem::Length)),
        ("_system", Err(ManifestNameProblem::FirstCharacter)),
        ("%a", Err(ManifestNameProblem::FirstCharacter)),
        ("a.b", Err(ManifestNameProblem::Character)),
        ("a/b", Err(ManifestNameProblem::Character)),
        ("\u{e4}", Err(ManifestNameProblem::Character)),
        ("a\0", Err(ManifestNameProblem::Character)),
    ] {
        assert_eq!(check_manifest_name(name), expected, "{name:?}");
    }
}

#[test]
fn scopes_and_collections_are_limited_in_number() {
    let mut keeper = ManifestKeeper::default();
    let scopes: Vec<String> = (1..SCOPES_MAX).map(|at| format!("s{at}")).collect();
    for scope in &scopes {
        keeper = keeper.edit(&create_scope(scope)).expect("there is room");
    }
    assert_eq!(
        keeper.edit(&create_scope("more")),
        Err(ManifestError::TooManyScopes)
    );
    for at in 1..COLLECTIONS_MAX {
        let scope = &scopes[at % scopes.len()];
        keeper = keeper
            .edit(&create(scope, &format!("c{at}"), None))
            .expect("there is room");
    }
    assert_eq!(
        keeper.edit(&create("s1", "more", None)),
        Err(ManifestError::TooManyCollections)
    );
    // There is room again for another.
    let keeper = keeper.edit(&drop_scope("s1")).expect("it is there");
    keeper
        .edit(&create("s2", "more", None))
        .expect("there is room");
}

#[test]
fn documents() {
    let keeper = shop();
    expect![[r#"{"uid":"4","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0"},{"name":"logs","uid":"a","maxTTL":0}]},{"name":"shop","uid":"8","collections":[{"name":"orders","uid":"8"},{"name":"carts","uid":"9","maxTTL":3600}]}]}"#]]
    .assert_eq(&manifest_json(keeper.manifest()));
    expect![[r#"{"uid":"4","scopes":[{"name":"_default","uid":"0","collections":[{"name":"_default","uid":"0","maxTTL":0,"history":false},{"name":"logs","uid":"a","maxTTL":-1,"history":false}]},{"name":"shop","uid":"8","collections":[{"name":"orders","uid":"8","maxTTL":0,"history":false},{"name":"carts","uid":"9","maxTTL":3600,"history":false}]}]}"#]]
    .assert_eq(&manifest_rest_json(keeper.manifest()));
    expect![[r#"
        {
          "version": 1,
          "nextScope": "8",
          "nextCollection": "8",
          "uid": "0",
          "scopes": [
            {
              "name": "_default",
              "uid": "0",
              "collections": [
                {
                  "name": "_default",
                  "uid": "0"
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&String::from_utf8(ManifestKeeper::default().to_json()).expect("text"));
}

#[test]
fn malformed_manifests_are_rejected() {
    let scopes = |scopes: &str| format!(r#"{{"uid":"1","scopes":[{scopes}]}}"#);
    let default = r#"{"name":"_default","uid":"0","collections":[]}"#;
    assert!(parse_manifest(scopes(default).as_bytes()).is_ok());
    for (json, part) in [
        ("".to_owned(), "damaged"),
        ("{}".to_owned(), "damaged"),
        (scopes(""), "no default scope"),
        (scopes(&format!("{default},{default}")), "there twice"),
        (
            scopes(r#"{"name":"_default","uid":"8","collections":[]}"#),
            "wrong id",
        ),
        (
            scopes(r#"{"name":"a","uid":"0","collections":[]}"#),
            "wrong id",
        ),
        (
            scopes(r#"{"name":"_default","uid":"+0","collections":[]}"#),
            "hexadecimal",
        ),
        (
            scopes(r#"{"name":"_default","uid":"100000000","collections":[]}"#),
            "no id",
        ),
        (
            scopes(
                r#"{"name":"_default","uid":"0","collections":[{"name":"a","uid":"8"},{"name":"a","uid":"9"}]}"#,
            ),
            "there twice",
        ),
        (
            scopes(
                r#"{"name":"_default","uid":"0","collections":[{"name":"a","uid":"8"},{"name":"b","uid":"8"}]}"#,
            ),
            "another's",
        ),
        (
            scopes(r#"{"name":"_default","uid":"0","collections":[{"name":"a","uid":"0"}]}"#),
            "wrong id",
        ),
    ] {
        let error = parse_manifest(json.as_bytes()).expect_err(&json);
        assert!(error.to_string().contains(part), "{json}: {error}");
    }
}

/// A damaged file must not give an id away that is somebody's.
#[test]
fn next_manifest_id_is_never_reused() {
    let json = String::from_utf8(shop().to_json()).expect("text");
    assert!(ManifestKeeper::from_json(json.as_bytes()).is_ok());
    for (is, becomes) in [
        (r#""nextCollection": "b""#, r#""nextCollection": "a""#),
        (r#""nextScope": "9""#, r#""nextScope": "8""#),
        (r#""nextScope": "9""#, r#""nextScope": "100000009""#),
        (r#""version": 1"#, r#""version": 2"#),
    ] {
        assert!(json.contains(is), "{json}");
        let other = json.replace(is, becomes);
        assert!(
            ManifestKeeper::from_json(other.as_bytes()).is_err(),
            "{becomes}"
        );
    }
}

/// Any scopes, among them mostly the default one.
fn wanted() -> impl Strategy<Value = WantedManifest> {
    let name =
        || prop_oneof![4 => Just("_default"), 4 => Just("a"), 4 => Just("b"), 1 => Just("%")];
    let ttl = prop_oneof![Just(None), Just(Some(0)), Just(Some(60))];
    let collection = (name(), ttl).prop_map(|(name, max_ttl)| WantedCollection {
        name: name.to_owned(),
        max_ttl,
    });
    let scope = (name(), proptest::collection::vec(collection, 0..3));
    let scope = scope.prop_map(|(name, collections)| WantedScope {
        name: name.to_owned(),
        collections,
    });
    proptest::collection::vec(scope, 0..4).prop_map(|scopes| WantedManifest {
        scopes,
        valid_on: None,
    })
}

/// The same of names alone: all that is wanted, unless it has something twice, or what may not be made or left out.
fn apply_wanted(model: &mut Model, wanted: &WantedManifest) -> bool {
    let is_there =
        |scope: &str, name: &str| model.get(scope).is_some_and(|it| it.contains_key(name));
    let may = |is_there: bool, name: &str| is_there || check_manifest_name(name).is_ok();
    let mut next = Model::new();
    for scope in &wanted.scopes {
        let mut collections = BTreeMap::new();
        for it in &scope.collections {
            let is_new = collections.insert(it.name.clone(), it.max_ttl).is_none();
            if !is_new || !may(is_there(&scope.name, &it.name), &it.name) {
                return false;
            }
        }
        let may_be = may(model.contains_key(&scope.name), &scope.name);
        if !may_be || next.insert(scope.name.clone(), collections).is_some() {
            return false;
        }
    }
    let is_whole = next.contains_key("_default");
    if is_whole {
        *model = next;
    }
    is_whole
}

fn edits() -> impl Strategy<Value = ManifestEdit> {
    let name = || prop_oneof![Just("_default"), Just("a"), Just("b"), Just("c"), Just("%")];
    let ttl = || prop_oneof![Just(None), Just(Some(0)), Just(Some(60))];
    prop_oneof![
        name().prop_map(create_scope),
        name().prop_map(drop_scope),
        (name(), name(), ttl()).prop_map(|(scope, name, ttl)| create(scope, name, ttl)),
        (name(), name(), ttl()).prop_map(|(scope, name, ttl)| modify(scope, name, ttl)),
        (name(), name()).prop_map(|(scope, name)| drop_collection(scope, name)),
        wanted().prop_map(ManifestEdit::Replace),
    ]
}

type Model = BTreeMap<String, BTreeMap<String, Option<u32>>>;

/// The same edit of names alone; false when it is refused.
fn apply(model: &mut Model, edit: &ManifestEdit) -> bool {
    let may = |name: &str| check_manifest_name(name).is_ok();
    match edit {
        ManifestEdit::CreateScope { scope } => {
            may(scope)
                && !model.contains_key(scope)
                && model.insert(scope.clone(), BTreeMap::new()).is_none()
        }
        ManifestEdit::DropScope { scope } => scope != "_default" && model.remove(scope).is_some(),
        ManifestEdit::CreateCollection {
            scope,
            collection,
            max_ttl,
        } => model.get_mut(scope).is_some_and(|scope| {
            may(collection)
                && !scope.contains_key(collection)
                && scope.insert(collection.clone(), *max_ttl).is_none()
        }),
        ManifestEdit::ModifyCollection {
            scope,
            collection,
            max_ttl,
        } => {
            let found = model
                .get_mut(scope)
                .and_then(|scope| scope.get_mut(collection));
            found.map(|is| *is = max_ttl.unwrap_or(*is)).is_some()
        }
        ManifestEdit::DropCollection { scope, collection } => model
            .get_mut(scope)
            .is_some_and(|scope| scope.remove(collection).is_some()),
        ManifestEdit::Replace(wanted) => apply_wanted(model, wanted),
        other => panic!("no such edit: {other:?}"),
    }
}

fn names_of(manifest: &Manifest) -> Model {
    let scopes = manifest.scopes.iter().map(|scope| {
        let collections = scope.collections.iter();
        let collections = collections.map(|it| (it.name.clone(), it.max_ttl));
        (scope.name.clone(), collections.collect())
    });
    scopes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn manifest_edits_match_a_model(edits in proptest::collection::vec(edits(), 0..60)) {
        let mut keeper = ManifestKeeper::default();
        let mut model = names_of(keeper.manifest());
        let mut given: BTreeMap<u32, (String, String)> = BTreeMap::new();
        for edit in edits {
            let before = model.clone();
            let is_allowed = apply(&mut model, &edit);
            match keeper.edit(&edit) {
                Ok(next) => {
                    prop_assert!(is_allowed, "{edit:?}");
                    let is_changed = next.manifest() != keeper.manifest();
                    prop_assert_eq!(next.uid() > keeper.uid(), is_changed);
                    prop_assert_eq!(is_changed, before != model);
                    for (scope, it) in next.manifest().collections() {
                        // An id that is new was never anybody's.
                        if keeper.manifest().collection(it.id).is_none() {
                            let name = (scope.name.clone(), it.name.clone());
                            prop_assert!(given.insert(it.id.0, name).is_none());
                        }
                    }
                    keeper = next;
                }
                Err(error) => prop_assert!(!is_allowed, "{edit:?}: {error}"),
            }
            prop_assert_eq!(&names_of(keeper.manifest()), &model);
        }
        let json = manifest_json(keeper.manifest());
        prop_assert_eq!(&parse_manifest(json.as_bytes()).expect("it is one"), &**keeper.manifest());
        let kept = ManifestKeeper::from_json(&keeper.to_json()).expect("it is one");
        prop_assert_eq!(kept, keeper);
    }

    #[test]
    fn manifest_parser_survives_any_text(text in "\\PC*") {
        let _ = parse_manifest(text.as_bytes());
        let _ = ManifestKeeper::from_json(text.as_bytes());
        let _ = parse_wanted_scopes(text.as_bytes());
    }
}
