//! The users that a cluster shares, as documents.

use kedge_auth::{
    AuthError, COMMON_DOCUMENT, CharacterClass, GroupChange, PasswordPolicy, Privileges, Roles,
    StoreProblem, UserChange, UserDocuments, UserStore, UsersRevision,
};

use crate::logs_in;

fn revision(revision: u64) -> UsersRevision {
    UsersRevision {
        cluster: "00112233445566778899aabbccddeeff".to_owned(),
        generation: "1".to_owned(),
        revision,
    }
}

/// A store with an administrator, a group, and the user of the nodes.
fn store() -> UserStore {
    let mut store = UserStore::new().unwrap();
    store.add("ada", "lovelace", Roles::admin(), 1).unwrap();
    store
        .add("kedge.cluster", "secret", Roles::admin(), 1)
        .unwrap();
    let group = GroupChange {
        roles: Some("data_reader[*]".parse().unwrap()),
        ..GroupChange::default()
    };
    store.set_group("readers", &group, Privileges::ALL).unwrap();
    let in_group = UserChange {
        password: Some("secret of bob".to_owned().into()),
        groups: Some(vec!["readers".to_owned()]),
        ..UserChange::default()
    };
    store
        .set_user("bob", &in_group, Privileges::ALL, 2)
        .unwrap();
    store
}

#[test]
fn password_policy_is_shared_with_the_users() {
    let mut store = store();
    assert_eq!(store.password_policy(), None);
    let without = store.clone().into_shared(revision(7));
    let policy = PasswordPolicy {
        length_min: 9,
        classes: [CharacterClass::Digits].into(),
    };
    store.set_password_policy(policy.clone());
    let shared = store.into_shared(revision(8));
    let documents = shared.to_documents();
    let other = UserStore::new().unwrap();
    let followed = other.with_documents(&documents).unwrap().unwrap();
    assert_eq!(followed.password_policy(), Some(&policy));
    let read = UserStore::from_json(&followed.to_json()).unwrap();
    assert_eq!(read.password_policy(), Some(&policy));
    // Documents without one are those of a cluster that has set none.
    let documents = without.to_documents();
    let followed = followed.with_documents(&documents).unwrap().unwrap();
    assert_eq!(followed.password_policy(), None);
}

#[test]
fn shared_users_round_trip_through_documents() {
    let store = store();
    assert!(store.to_documents().is_empty(), "a server's own users");
    let shared = store.into_shared(revision(7));
    let documents = shared.to_documents();
    let names: Vec<&str> = documents.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "1/groups/readers",
            "1/local/ada",
            "1/local/bob",
            COMMON_DOCUMENT
        ]
    );
    for document in documents.values() {
        let text = std::str::from_utf8(document).unwrap();
        assert!(!text.contains("lovelace") && !text.contains("secret of bob"));
    }
    // Another node has its own user of the nodes, and forgets all others.
    let mut other = UserStore::new().unwrap();
    other
        .add("kedge.cluster", "secret", Roles::admin(), 1)
        .unwrap();
    other.add("old", "gone", Roles::admin(), 1).unwrap();
    let followed = other.with_documents(&documents).unwrap().unwrap();
    assert_eq!(followed.shared(), Some(&revision(7)));
    assert_eq!(followed.to_documents(), documents);
    let ids: Vec<&str> = followed.list().map(|user| user.id()).collect();
    assert_eq!(ids, ["ada", "bob", "kedge.cluster"]);
    for (user, password) in [
        ("ada", "lovelace"),
        ("bob", "secret of bob"),
        ("kedge.cluster", "secret"),
    ] {
        assert!(logs_in(&followed, user, password), "{user}");
    }
    // It is the same after a restart.
    let read = UserStore::from_json(&followed.to_json()).unwrap();
    assert_eq!(read.to_documents(), documents);
}

/// Nodes would pay for the hashing of all passwords again after each change.
#[test]
fn verified_passwords_stay_so_when_documents_are_followed() {
    let shared = store().into_shared(revision(1));
    assert!(shared.verify_password("ada", b"lovelace"));
    let mut next = shared.clone().into_shared(revision(2));
    next.set_password("bob", "another", 3).unwrap();
    let followed = shared.with_documents(&next.to_documents()).unwrap();
    let followed = followed.unwrap();
    followed.keep_verified(&shared);
    assert!(followed.is_verified("ada", b"lovelace"));
    assert!(!followed.is_verified("bob", b"secret of bob"));
    assert!(followed.verify_password("bob", b"another"));
}

#[test]
fn documents_of_other_generations_do_not_count() {
    let mut documents = store().into_shared(revision(1)).to_documents();
    let mut next = store();
    next.remove("bob").unwrap();
    let next = next.into_shared(UsersRevision {
        generation: "2".to_owned(),
        ..revision(2)
    });
    documents.extend(next.to_documents());
    documents.insert("3/local/eve".to_owned(), b"{".to_vec());
    let followed = store().with_documents(&documents).unwrap().unwrap();
    assert_eq!(followed.to_documents(), next.to_documents());
    assert!(!followed.exists("bob"));
}

#[test]
fn damaged_documents_are_rejected_with_named_errors() {
    let good = store().into_shared(revision(1)).to_documents();
    let read = |documents: &UserDocuments| store().with_documents(documents).map(|it| it.is_some());
    assert_eq!(read(&good), Ok(true));
    let mut none = good.clone();
    none.remove(COMMON_DOCUMENT);
    assert_eq!(read(&none), Ok(false));
    let changed = |name: &str, from: &str, to: &str| {
        let mut documents = good.clone();
        let text = String::from_utf8(documents[name].clone()).unwrap();
        assert!(text.contains(from), "{text}");
        documents.insert(name.to_owned(), text.replace(from, to).into_bytes());
        read(&documents).unwrap_err()
    };
    let newer = changed(COMMON_DOCUMENT, "\"version\":1", "\"version\":3");
    assert!(matches!(
        newer,
        AuthError::UnsupportedVersion { found: 3, .. }
    ));
    let iterations = changed(COMMON_DOCUMENT, "4096", "1");
    let problem = StoreProblem::Iterations;
    let user = None;
    assert_eq!(iterations, AuthError::CorruptStore { user, problem });
    let group = changed("1/local/bob", "readers", "writers");
    assert_eq!(group, AuthError::UnknownGroup("writers".to_owned()));
    for (name, from, to) in [
        ("1/local/bob", "\"bob\"", "\"ada\""),
        ("1/groups/readers", "\"readers\"", "\"writers\""),
    ] {
        let error = changed(name, from, to);
        assert!(
            matches!(
                error,
                AuthError::CorruptStore {
                    problem: StoreProblem::Name,
                    ..
                }
            ),
            "{error:?}"
        );
    }
    let malformed = changed("1/local/ada", "{", "[");
    assert!(matches!(malformed, AuthError::MalformedStore { .. }));
    // The user of the nodes is each node's own.
    let mut reserved = good.clone();
    reserved.insert(
        "1/local/kedge.cluster".to_owned(),
        good["1/local/ada"].clone(),
    );
    read(&reserved).unwrap_err();
}
