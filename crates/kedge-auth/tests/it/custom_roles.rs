//! Roles that administrators define.

use kedge_auth::{
    AuditSettings, AuditUser, AuthError, CustomRole, ExternalGrants, GroupChange, JwtSettings,
    LdapSettings, Privilege, Privileges, RoleDefinitionProblem, RoleExtent, Roles, UserChange,
    UserStore, UsersRevision,
};

const ALL: Privileges = Privileges::ALL;

fn role(name: &str, extent: RoleExtent, privileges: &[&str]) -> Result<CustomRole, AuthError> {
    CustomRole::new(name, "", extent, privileges.iter().copied())
}

/// A store with the role `orders`, which adds documents, and `ada` who has it in a collection.
fn store() -> UserStore {
    let mut store = UserStore::new().unwrap();
    let orders = role("orders", RoleExtent::Collection, &["insert"]).unwrap();
    store.set_custom_role(orders, ALL).unwrap();
    let roles = Roles::parse("orders[b:s:c],data_reader[b]", store.custom_roles()).unwrap();
    store.add("ada", "lovelace", roles, 1).unwrap();
    store
}

#[test]
fn defined_roles_are_given_by_groups_and_tokens() {
    let mut store = store();
    let settings = |roles: &str| -> JwtSettings {
        let text = r#"{"enabled": true, "issuers": [{"name": "i", "audiences": ["a"], "algorithms": ["ES256"],
            "jwks": {}, "groupsClaim": "g", "rules": [{"value": "v", "roles": "ROLES"}]}]}"#;
        serde_json::from_str(&text.replace("ROLES", roles)).unwrap()
    };
    assert!(settings("others[b]").check(store.custom_roles()).is_err());
    let unknown = AuthError::UnknownRole("others".to_owned());
    assert_eq!(store.set_jwt(Some(settings("others[b]"))), Err(unknown));
    let rule = settings("data_reader[b],orders[b]");
    assert_eq!(rule.check(store.custom_roles()), Ok(()));
    store.set_jwt(Some(rule)).unwrap();
    let change = GroupChange {
        roles: Some(Roles::parse("orders[c]", store.custom_roles()).unwrap()),
        ldap_group_ref: Some("cn=sales".to_owned()),
        ..GroupChange::default()
    };
    store.set_group("sales", &change, ALL).unwrap();
    store.set_ldap(Some(LdapSettings {
        authorization_enabled: true,
        ..LdapSettings::default()
    }));
    let grants = ExternalGrants {
        roles: ["data_reader[b],orders[b]".to_owned()].into(),
        directory_groups: ["cn=sales".to_owned()].into(),
        ..ExternalGrants::default()
    };
    let allows = |store: &UserStore, privilege, bucket| {
        let roles = store.roles_of_login("^eve", Some(&grants));
        roles.allows(privilege, Some(bucket))
    };
    for bucket in ["b", "c"] {
        assert!(allows(&store, Privilege::Insert, bucket), "{bucket}");
        assert!(!allows(&store, Privilege::Delete, bucket), "{bucket}");
    }
    // The definition that holds now counts, also for logins of before.
    let change = role("orders", RoleExtent::Collection, &["delete"]).unwrap();
    store.set_custom_role(change, ALL).unwrap();
    for bucket in ["b", "c"] {
        assert!(!allows(&store, Privilege::Insert, bucket), "{bucket}");
        assert!(allows(&store, Privilege::Delete, bucket), "{bucket}");
    }
    // A rule keeps its role.
    store.remove_user("ada", ALL).unwrap();
    store.remove_group("sales", ALL).unwrap();
    let used = store.remove_custom_role("orders", ALL).unwrap_err();
    assert!(used.to_string().contains("a rule for tokens"), "{used}");
    store.set_jwt(None).unwrap();
    store.remove_custom_role("orders", ALL).unwrap();
}

#[test]
fn defined_role_grants_its_privileges_where_it_was_given() {
    let mut store = store();
    let allows = |store: &UserStore, privilege, collection| {
        let roles = store.roles_of("ada");
        roles.allows_in(privilege, "b", "s", Some(collection))
    };
    assert!(allows(&store, Privilege::Insert, "c"));
    assert!(!allows(&store, Privilege::Insert, "d"));
    assert!(!allows(&store, Privilege::Upsert, "c"));
    let change = role("orders", RoleExtent::Collection, &["upsert", "delete"]).unwrap();
    store.set_custom_role(change, ALL).unwrap();
    for privilege in [Privilege::Insert, Privilege::Upsert, Privilege::Delete] {
        assert!(allows(&store, privilege, "c"), "{privilege:?}");
    }
    assert_eq!(
        store.roles_of("ada").to_string(),
        "orders[b:s:c],data_reader[b]"
    );
    // On the whole bucket and the node it only lets the user in.
    assert!(!store.allows("ada", Privilege::Insert, Some("b")));
    assert!(store.allows("ada", Privilege::Access, Some("b")));
}

#[test]
fn roles_are_defined_for_what_their_privileges_are_about() {
    use RoleExtent::{Bucket, Cluster, Collection, Scope};
    let extents = [Cluster, Bucket, Scope, Collection];
    for privilege in Privilege::ALL {
        let fits = extents.map(|extent| role("r", extent, &[privilege.name()]).is_ok());
        let expected = match privilege {
            Privilege::Admin => [false; 4],
            Privilege::Inspect
            | Privilege::Settings
            | Privilege::Buckets
            | Privilege::InspectUsers
            | Privilege::Users => [true, false, false, false],
            Privilege::Flush | Privilege::Manage => [true, true, false, false],
            Privilege::Collections => [true, true, true, false],
            _ => [true; 4],
        };
        assert_eq!(fits, expected, "{privilege:?}");
    }
    let unknown = role("r", Cluster, &["read", "fly"]);
    let problem = RoleDefinitionProblem::Privilege("fly".to_owned());
    assert_eq!(unknown, Err(AuthError::BadRoleDefinition(problem)));
    let taken = role("data_reader", Cluster, &[]);
    let problem = RoleDefinitionProblem::InCatalogue;
    assert_eq!(taken, Err(AuthError::BadRoleDefinition(problem)));
    for name in ["", "a,b", "a[b]", "a b", "kedge.x"] {
        assert!(role(name, Cluster, &[]).is_err(), "{name:?}");
    }
}

#[test]
fn role_in_use_stays() {
    let mut store = store();
    let in_use = |by: &str| {
        Err(AuthError::RoleInUse {
            role: "orders".to_owned(),
            by: by.to_owned(),
        })
    };
    let wider = role("orders", RoleExtent::Bucket, &["insert"]).unwrap();
    assert_eq!(
        store.set_custom_role(wider.clone(), ALL),
        in_use("user \"ada\"")
    );
    assert_eq!(
        store.remove_custom_role("orders", ALL),
        in_use("user \"ada\"")
    );
    let group = GroupChange {
        roles: Some(Roles::parse("orders[*]", store.custom_roles()).unwrap()),
        ..GroupChange::default()
    };
    store.set_group("g", &group, ALL).unwrap();
    store.remove("ada").unwrap();
    assert_eq!(
        store.remove_custom_role("orders", ALL),
        in_use("group \"g\"")
    );
    store.remove_group("g", ALL).unwrap();
    store.set_custom_role(wider, ALL).unwrap();
    store.remove_custom_role("orders", ALL).unwrap();
    let gone = store.remove_custom_role("orders", ALL);
    assert_eq!(gone, Err(AuthError::UnknownRole("orders".to_owned())));
}

/// The definition can go between the moment at which roles are read and the one at which they are given.
#[test]
fn roles_that_are_gone_are_not_given() {
    let mut store = store();
    let roles = Roles::parse("orders[b]", store.custom_roles()).unwrap();
    store.remove("ada").unwrap();
    store.remove_custom_role("orders", ALL).unwrap();
    let unknown = || Err(AuthError::UnknownRole("orders".to_owned()));
    assert_eq!(store.add("bob", "secret", roles.clone(), 1), unknown());
    let change = UserChange {
        password: Some("secret".to_owned().into()),
        roles: Some(roles.clone()),
        ..UserChange::default()
    };
    assert_eq!(store.set_user("eve", &change, ALL, 1), unknown());
    let group = GroupChange {
        roles: Some(roles),
        ..GroupChange::default()
    };
    assert_eq!(store.set_group("g", &group, ALL), unknown());
}

#[test]
fn only_full_administrators_define_roles() {
    let mut store = store();
    let by = ALL.without(Privileges::of(&[Privilege::Admin]));
    let other = role("other", RoleExtent::Cluster, &["read"]).unwrap();
    assert_eq!(store.set_custom_role(other, by), Err(AuthError::Guarded));
    assert_eq!(
        store.remove_custom_role("orders", by),
        Err(AuthError::Guarded)
    );
    let givers = role("givers", RoleExtent::Cluster, &["users!write"]).unwrap();
    store.set_custom_role(givers, ALL).unwrap();
    let change = UserChange {
        roles: Some(Roles::parse("givers", store.custom_roles()).unwrap()),
        ..UserChange::default()
    };
    assert_eq!(
        store.set_user("ada", &change, by, 1),
        Err(AuthError::Guarded)
    );
    store.set_user("ada", &change, ALL, 1).unwrap();
}

#[test]
fn defined_roles_and_audit_settings_are_stored_and_shared() {
    let mut store = store();
    let audit = AuditSettings {
        enabled: true,
        rotate_interval_s: 900,
        rotate_bytes: 1 << 20,
        prune_age_s: 0,
        disabled: [20_480].into(),
        disabled_users: [AuditUser {
            name: "ada".to_owned(),
            domain: "local".to_owned(),
        }]
        .into(),
    };
    store.set_audit_settings(audit.clone());
    let read = UserStore::from_json(&store.to_json()).unwrap();
    let shared = store.clone().into_shared(UsersRevision {
        cluster: "00112233445566778899aabbccddeeff".to_owned(),
        generation: "g".to_owned(),
        revision: 7,
    });
    let documents = shared.to_documents();
    assert!(documents.contains_key("g/roles/orders"));
    let followed = UserStore::new().unwrap();
    let followed = followed.with_documents(&documents).unwrap().unwrap();
    for copy in [read, followed] {
        assert_eq!(copy.custom_roles(), store.custom_roles());
        assert_eq!(copy.roles_of("ada"), store.roles_of("ada"));
        assert_eq!(copy.audit_settings(), Some(&audit));
    }
    // A user with a role that nobody has defined is a damaged store.
    let damaged = store
        .to_json()
        .replace("\"name\": \"orders\"", "\"name\": \"others\"");
    let unknown = AuthError::UnknownRole("orders".to_owned());
    assert_eq!(UserStore::from_json(&damaged).err(), Some(unknown));
}
