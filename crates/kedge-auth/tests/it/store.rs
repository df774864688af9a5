//! The user store: operations, limits and the stored form.

use std::collections::BTreeMap;

use kedge_auth::{
    AuthError, DISPLAY_NAME_BYTES_MAX, HashCost, ITERATIONS_MAX, ITERATIONS_MIN,
    PASSWORD_BYTES_MAX, PasswordProblem, Privilege, Roles, STORE_VERSION, StoreProblem,
    USER_NAME_BYTES_MAX, UserNameProblem, UserStore,
};
use proptest::prelude::*;

use crate::{GOLDEN, GOLDEN_V1, GOLDEN_V2, GOLDEN_V3, cases, cheap, golden, logs_in, read};

#[test]
fn user_names() {
    let mut store = UserStore::new().unwrap();
    let longest = "x".repeat(USER_NAME_BYTES_MAX);
    for good in [
        "a",
        "Administrator",
        "first.last",
        "a-b_c+d!~",
        "two words",
        "\u{4e2d}",
        &longest,
    ] {
        assert_eq!(store.add(good, "pw", Roles::default(), 0), Ok(()), "{good}");
        assert!(store.exists(good));
    }
    let mut bad = vec![
        (String::new(), UserNameProblem::Empty),
        (
            format!("{longest}x"),
            UserNameProblem::TooLong(USER_NAME_BYTES_MAX),
        ),
        ("a\u{85}b".to_owned(), UserNameProblem::Forbidden('\u{85}')),
    ];
    for c in "()<>@,;:\\\"/[]?={}\0\n\t\x7f".chars() {
        bad.push((format!("a{c}b"), UserNameProblem::Forbidden(c)));
    }
    let before = store.to_json();
    for (name, problem) in bad {
        let result = store.add(&name, "pw", Roles::default(), 0);
        assert_eq!(result, Err(AuthError::BadName(problem)), "{name:?}");
    }
    assert_eq!(store.to_json(), before);
}

#[test]
fn passwords() {
    let mut store = golden();
    let before = store.to_json();
    for (password, problem) in [
        (String::new(), PasswordProblem::Empty),
        ("x".repeat(PASSWORD_BYTES_MAX + 1), PasswordProblem::TooLong),
        ("a\0b".to_owned(), PasswordProblem::HoldsNul),
    ] {
        let error = Err(AuthError::BadPassword(problem));
        assert_eq!(store.add("new", &password, Roles::default(), 0), error);
        assert_eq!(store.set_password("user", &password, 0), error);
        assert!(!store.verify_password("user", password.as_bytes()));
    }
    assert_eq!(store.to_json(), before);
}

#[test]
fn failed_user_changes_name_the_user_and_change_nothing() {
    let mut store = golden();
    let before = store.to_json();
    let unknown = || Err(AuthError::UnknownUser("nobody".to_owned()));
    assert_eq!(store.set_password("nobody", "pw", 0), unknown());
    assert_eq!(store.set_roles("nobody", Roles::admin()), unknown());
    assert_eq!(store.set_display_name("nobody", "N"), unknown());
    assert_eq!(store.remove("nobody"), unknown());
    let exists = Err(AuthError::UserExists("user".to_owned()));
    assert_eq!(store.add("user", "pw", Roles::admin(), 0), exists);
    for (name, problem) in [
        (
            "x".repeat(DISPLAY_NAME_BYTES_MAX + 1),
            UserNameProblem::TooLong(DISPLAY_NAME_BYTES_MAX),
        ),
        ("a\nb".to_owned(), UserNameProblem::Forbidden('\n')),
    ] {
        assert_eq!(
            store.set_display_name("user", &name),
            Err(AuthError::BadDisplayName(problem))
        );
    }
    for iterations in [0, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1] {
        assert_eq!(
            store.set_iterations(iterations),
            Err(AuthError::BadIterations(iterations))
        );
    }
    assert_eq!(store.to_json(), before);
}

#[test]
fn stored_user_has_the_set_properties() {
    let mut store = UserStore::new().unwrap();
    assert!(store.is_empty());
    store
        .add("bob", "one", "data_reader[b]".parse().unwrap(), 5)
        .unwrap();
    store.add("al", "two", Roles::admin(), 6).unwrap();
    store
        .set_display_name("bob", "Bob <b@example.com>")
        .unwrap();
    assert_eq!(
        store.list().map(|u| u.id()).collect::<Vec<_>>(),
        ["al", "bob"]
    );
    assert_eq!(store.len(), 2);
    let bob = store.get("bob").unwrap();
    assert_eq!((bob.id(), bob.name()), ("bob", "Bob <b@example.com>"));
    assert_eq!(
        (
            bob.roles().to_string().as_str(),
            bob.password_change_date_s()
        ),
        ("data_reader[b]", 5)
    );
    assert!(store.allows("bob", Privilege::Read, Some("b")));
    assert!(!store.allows("bob", Privilege::Upsert, Some("b")));
    assert!(!store.allows("nobody", Privilege::Access, None));

    store
        .set_roles("bob", "data_writer[b]".parse().unwrap())
        .unwrap();
    store.set_password("bob", "three", 9).unwrap();
    let bob = store.get("bob").unwrap();
    assert_eq!(
        (
            bob.roles().to_string().as_str(),
            bob.password_change_date_s()
        ),
        ("data_writer[b]", 9)
    );
    assert!(store.get("nobody").is_none());
}

#[test]
fn verified_password_is_forgotten_on_change() {
    let mut store = golden();
    for _ in 0..2 {
        assert!(store.verify_password("user", b"pencil"));
        assert!(!store.verify_password("user", b"eraser"));
        assert!(!store.verify_password("nobody", b"pencil"));
    }
    store.set_password("user", "eraser", 0).unwrap();
    assert!(!store.verify_password("user", b"pencil"));
    assert!(store.verify_password("user", b"eraser"));
    store.remove("user").unwrap();
    assert!(!store.verify_password("user", b"eraser"));
    store.add("user", "ruler", Roles::default(), 0).unwrap();
    assert!(!store.verify_password("user", b"eraser"));
    assert!(store.verify_password("user", b"ruler"));

    let copy = store.clone();
    store.set_password("user", "chalk", 0).unwrap();
    assert!(copy.verify_password("user", b"ruler"));
    assert!(!store.verify_password("user", b"ruler"));
}

#[test]
fn equal_passwords_have_different_credentials() {
    let mut store = UserStore::new().unwrap();
    store.add("one", "same", Roles::default(), 0).unwrap();
    store.add("two", "same", Roles::default(), 0).unwrap();
    let text = store.to_json();
    let keys: Vec<&str> = text
        .lines()
        .filter(|l| l.contains("_key") || l.contains("\"salt\""))
        .collect();
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(
        (keys.len(), distinct.len()),
        (1 + 2 * 10, 1 + 2 * 10),
        "{text}"
    );
    assert!(!text.contains("same"));
}

#[test]
fn golden_store_file_round_trips() {
    let store = golden();
    assert_eq!(store.to_json(), GOLDEN);
    let user = store.get("user").unwrap();
    assert_eq!(user.name(), "Ada Lovelace");
    assert_eq!(
        user.roles().to_string(),
        "bucket_admin[*],data_reader[travel:inventory:hotel]"
    );
    assert_eq!(user.password_change_date_s(), 1_700_000_001);
    assert_eq!(user.groups().collect::<Vec<_>>(), ["readers"]);
    let groups: Vec<(&str, String)> = store
        .groups()
        .map(|(name, group)| (name, group.roles().to_string()))
        .collect();
    assert_eq!(
        groups,
        [
            ("operators", "cluster_admin".to_owned()),
            (
                "readers",
                "data_reader[*],data_reader[travel:inventory]".to_owned()
            )
        ]
    );
    let operators = store.group("operators").unwrap();
    assert_eq!(operators.ldap_group_ref(), "cn=ops,dc=example");
    assert_eq!(store.group("readers").unwrap().description(), "may read");
}

#[test]
fn store_files_of_earlier_versions_are_read() {
    let old = read(GOLDEN_V1);
    let mut new = read(GOLDEN_V2);
    assert_eq!((new.shared(), golden().shared().is_some()), (None, true));
    let by = kedge_auth::Privileges::ALL;
    for name in ["operators", "readers"] {
        new.remove_group(name, by).unwrap();
    }
    assert_eq!(old.to_json(), new.to_json());
    assert!(logs_in(&old, "user", "pencil"));
    assert!(logs_in(&read(GOLDEN_V3), "user", "pencil"));
    let hash = GOLDEN.find(",\n      \"argon2id\": {").unwrap();
    let end = hash + GOLDEN[hash..].find('}').unwrap();
    let without = format!("{}{}", &GOLDEN[..hash], &GOLDEN[end + 1..]);
    assert_eq!(read(GOLDEN_V3).to_json(), without);
}

#[test]
fn proven_password_of_an_earlier_version_is_hashed() {
    let mut store = read(GOLDEN_V3);
    assert!(!store.verify_password("user", b"eraser"));
    assert!(store.verify_password("user", b"pencil"));
    assert!(store.hash_upgrade("nobody", b"pencil").is_none());
    let upgrade = store.hash_upgrade("user", b"pencil").unwrap();
    assert!(store.apply_upgrade(upgrade.clone()));
    assert!(store.hash_upgrade("user", b"pencil").is_none());
    let stored = read(&store.to_json());
    assert!(logs_in(&stored, "user", "pencil") && !logs_in(&stored, "user", "eraser"));
    let unchanged = |store: &UserStore| store.get("user").unwrap().password_change_date_s();
    assert_eq!(unchanged(&stored), unchanged(&golden()));
    // The hash of another password comes too late.
    store.set_password("user", "eraser", 0).unwrap();
    assert!(!store.apply_upgrade(upgrade.clone()));
    assert!(logs_in(&read(&store.to_json()), "user", "eraser"));
    store.remove("user").unwrap();
    assert!(!store.apply_upgrade(upgrade));
}

#[test]
fn hash_of_another_cost_is_replaced_at_a_login() {
    let mut store = golden();
    assert!(store.hash_upgrade("user", b"pencil").is_none());
    let cost = HashCost::new(128, 1).unwrap();
    store.set_hash_cost(cost);
    assert_eq!(store.hash_cost(), cost);
    assert!(store.verify_password("user", b"pencil"), "at its own cost");
    let upgrade = store.hash_upgrade("user", b"pencil").unwrap();
    assert_eq!(upgrade.id(), "user");
    assert!(store.apply_upgrade(upgrade));
    let text = store.to_json();
    assert!(
        text.contains("\"memory_kib\": 128,\n        \"passes\": 1,"),
        "{text}"
    );
    assert!(logs_in(&read(&text), "user", "pencil"));
}

/// The hash decides, once there is one; the keys are for SCRAM.
#[test]
fn plain_login_is_checked_by_the_hash() {
    let salt = "c29tZXNhbHRzb21lc2FsdA==";
    assert!(GOLDEN.contains(salt));
    let store = read(&GOLDEN.replace(salt, "c29tZXNhbHRzb21lc2FsdQ=="));
    assert!(!store.verify_password("user", b"pencil"));
}

#[test]
fn hashes_are_kept_for_the_same_passwords_only() {
    let (before, cost) = (golden(), HashCost::DEFAULT);
    let mut same = read(GOLDEN_V3);
    same.set_hash_cost(cost);
    same.keep_hashes(&before);
    assert_eq!(same.hash_cost(), cheap());
    assert!(same.hash_upgrade("user", b"pencil").is_none());
    let mut other = read(GOLDEN_V3);
    other.set_password("user", "eraser", 0).unwrap();
    let text = other.to_json();
    other.keep_hashes(&before);
    assert_eq!(other.to_json(), text);
    let mut former = read(GOLDEN_V3);
    former.remove("user").unwrap();
    former.keep_hashes(&before);
    assert!(!former.exists("user"));
}

#[test]
fn user_store_round_trips_through_json() {
    let mut store = UserStore::new().unwrap();
    store.set_iterations(4_097).unwrap();
    store
        .add("ada", "one", "admin,data_reader[b:s:c]".parse().unwrap(), 7)
        .unwrap();
    store.set_display_name("ada", "\"A\" \u{4e2d}").unwrap();
    let read = UserStore::from_json(&store.to_json()).unwrap();
    assert_eq!(read.to_json(), store.to_json());
    assert_eq!(read.iterations(), 4_097);
    assert!(logs_in(&read, "ada", "one"));
    let empty = UserStore::new().unwrap();
    assert_eq!(
        UserStore::from_json(&empty.to_json()).unwrap().to_json(),
        empty.to_json()
    );
}

#[test]
fn corrupt_store_files_are_rejected_with_named_errors() {
    let at_user = |problem| AuthError::CorruptStore {
        user: Some("user".to_owned()),
        problem,
    };
    let whole = |problem| AuthError::CorruptStore {
        user: None,
        problem,
    };
    let version = |found| AuthError::UnsupportedVersion {
        found,
        supported: STORE_VERSION,
    };
    for (from, to, error) in [
        ("\"version\": 4", "\"version\": 6", version(6)),
        ("\"version\": 4", "\"version\": 0", version(0)),
        // What a later version looks like inside does not matter.
        (
            "\"version\": 4,\n  \"fallback_salt_key\"",
            "\"version\": 6, \"else\"",
            version(6),
        ),
        (
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "AAEC",
            whole(StoreProblem::FallbackKey),
        ),
        (
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "!",
            whole(StoreProblem::FallbackKey),
        ),
        (
            "\"iterations\": 4096,\n  \"users\"",
            "\"iterations\": 1,\n  \"users\"",
            whole(StoreProblem::Iterations),
        ),
        (
            "4096,\n          \"salt\": \"QSXC",
            "0,\n          \"salt\": \"QSXC",
            at_user(StoreProblem::Iterations),
        ),
        (
            "\"memory_kib\": 64",
            "\"memory_kib\": 7",
            at_user(StoreProblem::HashCost),
        ),
        (
            "\"passes\": 2",
            "\"passes\": 0",
            at_user(StoreProblem::HashCost),
        ),
        (
            "c29tZXNhbHRzb21lc2FsdA==",
            "c29tZXM=",
            at_user(StoreProblem::Salt),
        ),
        (
            "\"hash\": \"",
            "\"hash\": \"AAAA",
            at_user(StoreProblem::Key),
        ),
        ("QSXCR+Q6sek8bf92", "QSXC", at_user(StoreProblem::Salt)),
        (
            "QSXCR+Q6sek8bf92",
            "QSXCR+Q6sek8bf9",
            at_user(StoreProblem::Salt),
        ),
        (
            "6dlGYMOdZcOPutkcNY8U2g7vK9Y=",
            "6dlGYMOdZcOPutkcNY8U2g7v",
            at_user(StoreProblem::Key),
        ),
        (
            "D+CSWLOshSulAsxiupA+qs2/fTE=",
            "D+CSWLOshSulAsxiupA+qs2/fTE",
            at_user(StoreProblem::Key),
        ),
        (
            "\"id\": \"Administrator\"",
            "\"id\": \"user\"",
            at_user(StoreProblem::Duplicate),
        ),
        (
            "\"id\": \"user\"",
            "\"id\": \"us@er\"",
            AuthError::BadName(UserNameProblem::Forbidden('@')),
        ),
        (
            "Ada Lovelace",
            "Ada\\u0000",
            AuthError::BadDisplayName(UserNameProblem::Forbidden('\0')),
        ),
        (
            "bucket_admin[*]",
            "bucket_king[*]",
            AuthError::UnknownRole("bucket_king".to_owned()),
        ),
        (
            "\"groups\": [\n        \"readers\"",
            "\"groups\": [\n        \"writers\"",
            AuthError::UnknownGroup("writers".to_owned()),
        ),
        (
            "\"name\": \"operators\"",
            "\"name\": \"readers\"",
            whole(StoreProblem::DuplicateGroup),
        ),
        (
            "\"name\": \"operators\"",
            "\"name\": \"oper ators\"",
            AuthError::BadGroupName(UserNameProblem::Forbidden(' ')),
        ),
        (
            "cn=ops",
            "cn\\u0007ops",
            AuthError::BadDescription(UserNameProblem::Forbidden('\u{7}')),
        ),
    ] {
        assert!(GOLDEN.contains(from), "{from}");
        let text = GOLDEN.replace(from, to);
        assert_eq!(
            UserStore::from_json(&text).err(),
            Some(error),
            "{from} -> {to}"
        );
    }
    for (from, to) in [
        ("\"version\": 4", "\"version\": \"4\""),
        ("\"version\": 4,", ""),
        ("\"passes\": 2", "\"passes\": 2, \"lanes\": 4"),
        (
            "\"ldap_group_ref\": \"\"",
            "\"ldap_group_ref\": \"\", \"x\": 1",
        ),
        ("\"iterations\": 4096", "\"iterations\": -1"),
        ("\"SCRAM-SHA1\"", "\"SCRAM-SHA2\""),
        ("\"name\": \"\"", "\"name\": \"\", \"color\": 1"),
        (
            "\"password_change_date\": 1700000000",
            "\"password_change_date\": null",
        ),
    ] {
        assert!(GOLDEN.contains(from), "{from}");
        let error = UserStore::from_json(&GOLDEN.replace(from, to)).err();
        assert!(
            matches!(error, Some(AuthError::MalformedStore { .. })),
            "{from} -> {to}: {error:?}"
        );
    }
}

#[test]
fn store_file_errors_quote_no_content() {
    let key = "6dlGYMOdZcOPutkcNY8U2g7vK9Y=";
    for text in [
        GOLDEN.replace(&format!("\"{key}\""), &format!("[\"{key}\"]")),
        GOLDEN.replace(&format!("\"{key}\""), &format!("{{\"{key}\": 1}}")),
        GOLDEN.replace(key, &key[1..]),
    ] {
        let error = UserStore::from_json(&text).expect_err("corrupt");
        assert!(
            !format!("{error} {error:?}").contains(&key[2..10]),
            "{error:?}"
        );
    }
}

#[test]
fn truncated_store_file_is_malformed() {
    let end = GOLDEN.trim_end().len();
    for len in (0..end).step_by(7).chain([end - 1]) {
        let error = UserStore::from_json(&GOLDEN[..len]).err();
        assert!(
            matches!(error, Some(AuthError::MalformedStore { .. })),
            "{len}: {error:?}"
        );
    }
}

#[derive(Debug, Clone)]
enum Op {
    Add(u8, u8),
    SetPassword(u8, u8),
    Remove(u8),
    Verify(u8, u8),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let (user, password) = (0..3_u8, 0..2_u8);
    prop_oneof![
        1 => (user.clone(), password.clone()).prop_map(|(u, p)| Op::Add(u, p)),
        1 => (user.clone(), password.clone()).prop_map(|(u, p)| Op::SetPassword(u, p)),
        1 => user.clone().prop_map(Op::Remove),
        4 => (user, password).prop_map(|(u, p)| Op::Verify(u, p)),
        1 => Just(Op::Restart),
    ]
}

proptest! {
    // Few, as most operations cost one to three PBKDF2.
    #![proptest_config(cases(16))]

    #[test]
    fn user_store_matches_a_map_of_passwords(ops in proptest::collection::vec(op(), 1..25)) {
        let mut store = UserStore::new().unwrap();
        let mut model: BTreeMap<String, String> = BTreeMap::new();
        let name = |u: u8| format!("user{u}");
        let password = |p: u8| format!("password{p}");
        for op in ops {
            match op {
                Op::Add(u, p) => {
                    let added = store.add(&name(u), &password(p), Roles::default(), 0);
                    prop_assert_eq!(added.is_ok(), !model.contains_key(&name(u)));
                    model.entry(name(u)).or_insert(password(p));
                }
                Op::SetPassword(u, p) => {
                    let set = store.set_password(&name(u), &password(p), 0);
                    prop_assert_eq!(set.is_ok(), model.contains_key(&name(u)));
                    model.entry(name(u)).and_modify(|known| *known = password(p));
                }
                Op::Remove(u) => {
                    prop_assert_eq!(store.remove(&name(u)).is_ok(), model.remove(&name(u)).is_some());
                }
                Op::Verify(u, p) => {
                    let expected = model.get(&name(u)) == Some(&password(p));
                    prop_assert_eq!(store.verify_password(&name(u), password(p).as_bytes()), expected);
                }
                Op::Restart => store = UserStore::from_json(&store.to_json()).unwrap(),
            }
            prop_assert_eq!(store.list().map(|u| u.id()).collect::<Vec<_>>(), model.keys().collect::<Vec<_>>());
        }
    }
}
