//! Groups, and who may give which rights.

use kedge_auth::{
    AuthError, GROUPS_PER_USER_MAX, GroupChange, Privilege, Privileges, Roles, UserChange,
    UserNameProblem, UserStore,
};

const ADMIN: Privileges = Privileges::ALL;

fn by(roles: &str) -> Privileges {
    roles.parse::<Roles>().unwrap().privileges(None)
}

fn roles(text: &str) -> GroupChange {
    GroupChange {
        roles: Some(text.parse().unwrap()),
        ..GroupChange::default()
    }
}

fn user(roles: &str, groups: &[&str]) -> UserChange {
    UserChange {
        password: Some("secret".to_owned().into()),
        roles: Some(roles.parse().unwrap()),
        groups: Some(groups.iter().map(|name| (*name).to_owned()).collect()),
        ..UserChange::default()
    }
}

fn store() -> UserStore {
    let mut store = UserStore::new().unwrap();
    store
        .set_group("readers", &roles("data_reader[b]"), ADMIN)
        .unwrap();
    store.set_group("ops", &roles("admin"), ADMIN).unwrap();
    store
        .set_user("ada", &user("data_writer[b]", &["readers"]), ADMIN, 1)
        .unwrap();
    store
        .set_user("root", &user("", &["ops"]), ADMIN, 1)
        .unwrap();
    store
}

#[test]
fn users_inherit_the_roles_of_their_groups() {
    let mut store = store();
    assert_eq!(
        store.roles_of("ada").to_string(),
        "data_writer[b],data_reader[b]"
    );
    assert_eq!(
        store.get("ada").unwrap().roles().to_string(),
        "data_writer[b]"
    );
    assert!(store.allows("root", Privilege::Admin, None));
    assert!(store.roles_of("nobody").is_empty());
    // A group that changes changes its users.
    store
        .set_group("readers", &roles("data_monitoring[b]"), ADMIN)
        .unwrap();
    assert!(!store.allows("ada", Privilege::Read, Some("b")));
    assert!(store.allows("ada", Privilege::Stats, Some("b")));
    store.remove_group("readers", ADMIN).unwrap();
    assert_eq!(store.roles_of("ada").to_string(), "data_writer[b]");
    assert_eq!(store.get("ada").unwrap().groups().count(), 0);
    // What is left out stays.
    let name = UserChange {
        name: Some("Ada".to_owned()),
        ..UserChange::default()
    };
    store.set_user("root", &name, ADMIN, 2).unwrap();
    assert_eq!(
        store.get("root").unwrap().groups().collect::<Vec<_>>(),
        ["ops"]
    );
    let read = UserStore::from_json(&store.to_json()).unwrap();
    assert_eq!(read.to_json(), store.to_json());
    assert!(read.allows("root", Privilege::Admin, None));
}

#[test]
fn invalid_groups_and_users_are_rejected() {
    let mut store = store();
    let bad = |problem| Err(AuthError::BadGroupName(problem));
    for (name, expected) in [
        ("", bad(UserNameProblem::Empty)),
        ("-a", bad(UserNameProblem::Forbidden('-'))),
        ("a b", bad(UserNameProblem::Forbidden(' '))),
        ("a/b", bad(UserNameProblem::Forbidden('/'))),
        (&"x".repeat(129), bad(UserNameProblem::TooLong(128))),
        ("a-b_c.9", Ok(())),
    ] {
        let made = store.set_group(name, &GroupChange::default(), ADMIN);
        assert_eq!(made, expected, "{name}");
    }
    let long = GroupChange {
        description: Some("x".repeat(257)),
        ..GroupChange::default()
    };
    assert_eq!(
        store.set_group("g", &long, ADMIN),
        Err(AuthError::BadDescription(UserNameProblem::TooLong(256)))
    );
    assert!(store.group("g").is_none());
    let unknown = Err(AuthError::UnknownGroup("g".to_owned()));
    assert_eq!(store.remove_group("g", ADMIN), unknown);
    let eve = user("", &["readers", "g"]);
    assert_eq!(store.set_user("eve", &eve, ADMIN, 1), unknown);
    assert!(!store.exists("eve"));
    let names: Vec<String> = (0..=GROUPS_PER_USER_MAX).map(|n| format!("g{n}")).collect();
    for name in &names {
        store
            .set_group(name, &GroupChange::default(), ADMIN)
            .unwrap();
    }
    let many = UserChange {
        groups: Some(names),
        ..UserChange::default()
    };
    assert_eq!(
        store.set_user("ada", &many, ADMIN, 1),
        Err(AuthError::TooManyGroups)
    );
}

/// A manager of users must not make anyone, also not itself, an administrator.
#[test]
fn only_administrators_grant_the_right_to_grant_rights() {
    for manager in ["security_admin", "user_admin_local"] {
        let by = by(manager);
        let refused = Err(AuthError::Guarded);
        let name_only = UserChange {
            name: Some("x".to_owned()),
            ..UserChange::default()
        };
        let none: [&str; 0] = [];
        for (id, change) in [
            ("eve", user("admin", &none)),
            ("eve", user("security_admin", &none)),
            ("eve", user("", &["ops"])),
            ("ada", user("user_admin_local", &none)),
            ("ada", user("", &["readers", "ops"])),
            // Neither may an administrator be given another password, or fewer rights.
            ("root", user("", &none)),
            ("root", name_only),
        ] {
            assert_eq!(
                store().set_user(id, &change, by, 1),
                refused,
                "{manager}: {id} {change:?}"
            );
        }
        assert_eq!(store().remove_user("root", by), refused);
        assert_eq!(store().remove_group("ops", by), refused);
        assert_eq!(store().set_group("ops", &roles(""), by), refused);
        assert_eq!(store().set_group("readers", &roles("admin"), by), refused);
        // All else is theirs.
        let mut store = store();
        store
            .set_user("eve", &user("cluster_admin", &["readers"]), by, 1)
            .unwrap();
        store.remove_user("ada", by).unwrap();
        store
            .set_group("more", &roles("data_backup[*]"), by)
            .unwrap();
        store.remove_group("readers", by).unwrap();
    }
}

#[test]
fn debug_text_of_a_change_has_no_password() {
    let text = format!("{:?}", user("admin", &[]));
    assert!(text.contains("roles") && !text.contains("secret"), "{text}");
}
