//! External users: their rights, and their stored form.

use std::collections::BTreeSet;

use kedge_auth::{
    AuthError, COMMON_DOCUMENT, ExternalGrants, GroupChange, LdapSettings, LoginFailure, Mechanism,
    Privilege, Privileges, Roles, ServerSession, ServerStep, UserChange, UserDnMapping, UserStore,
    UsersRevision, external_id, external_name, normal_dn,
};

const ADMIN: Privileges = Privileges::ALL;
const DEVS: &str = "cn=devs,ou=groups,dc=example,dc=org";

fn change(roles: &str, groups: &[&str]) -> UserChange {
    UserChange {
        roles: Some(roles.parse().unwrap()),
        groups: Some(groups.iter().map(|name| (*name).to_owned()).collect()),
        ..UserChange::default()
    }
}

fn ldap() -> LdapSettings {
    LdapSettings {
        authentication_enabled: true,
        authorization_enabled: true,
        hosts: vec!["127.0.0.1".to_owned()],
        user_dn_mapping: Some(UserDnMapping::Template(
            "uid=%u,dc=example,dc=org".to_owned(),
        )),
        groups_query: Some("ou=groups,dc=example,dc=org??one?(member=%D)".to_owned()),
        bind_pass: "hush".to_owned().into(),
        ..LdapSettings::default()
    }
}

fn store() -> UserStore {
    let mut store = UserStore::new().unwrap();
    let group = |roles: &str, reference: &str| GroupChange {
        roles: Some(roles.parse().unwrap()),
        ldap_group_ref: Some(reference.to_owned()),
        ..GroupChange::default()
    };
    store
        .set_group(
            "devs",
            &group("data_writer[b]", "CN=Devs, OU=groups,dc=example,dc=org"),
            ADMIN,
        )
        .unwrap();
    store
        .set_group("others", &group("admin", ""), ADMIN)
        .unwrap();
    store
        .set_group("readers", &group("data_reader[c]", ""), ADMIN)
        .unwrap();
    store
        .set_external_user("ada", &change("data_reader[b]", &["readers"]), ADMIN)
        .unwrap();
    store.set_ldap(Some(ldap()));
    store
}

fn grants(groups: &[&str]) -> ExternalGrants {
    ExternalGrants {
        directory_groups: groups
            .iter()
            .map(|dn| normal_dn(dn))
            .collect::<BTreeSet<_>>(),
        ..ExternalGrants::default()
    }
}

#[test]
fn external_user_has_roles_by_name_and_by_groups_of_the_directory() {
    let mut store = store();
    let roles = |store: &UserStore, name: &str, groups: &[&str]| {
        let grants = grants(groups);
        store
            .roles_of_login(&external_id(name), Some(&grants))
            .to_string()
    };
    assert_eq!(
        store.roles_of("^ada").to_string(),
        "data_reader[b],data_reader[c]"
    );
    assert_eq!(roles(&store, "ada", &[]), "data_reader[b],data_reader[c]");
    assert_eq!(
        roles(&store, "ada", &[DEVS]),
        "data_reader[b],data_reader[c],data_writer[b]"
    );
    assert_eq!(roles(&store, "bob", &[DEVS]), "data_writer[b]");
    // The group without a reference is no one's, whatever a directory says.
    assert_eq!(roles(&store, "bob", &["", "others"]), "");
    let names: Vec<String> = store
        .groups_of_grants(&grants(&[DEVS]))
        .map(str::to_owned)
        .collect();
    assert_eq!(names, ["devs"]);
    store.remove_group("readers", ADMIN).unwrap();
    assert_eq!(store.roles_of("^ada").to_string(), "data_reader[b]");
    // Without authorization the directory gives nothing.
    store.set_ldap(Some(LdapSettings {
        authorization_enabled: false,
        ..ldap()
    }));
    assert_eq!(roles(&store, "bob", &[DEVS]), "");
    store.remove_external_user("ada", ADMIN).unwrap();
    assert_eq!(store.roles_of("^ada"), Roles::default());
    assert_eq!(
        store.remove_external_user("ada", ADMIN),
        Err(AuthError::UnknownUser("ada".to_owned()))
    );
}

#[test]
fn local_and_external_users_of_one_name_are_not_confused() {
    let mut store = store();
    store
        .add("ada", "lovelace", "data_monitoring[b]".parse().unwrap(), 1)
        .unwrap();
    assert_eq!(store.roles_of("ada").to_string(), "data_monitoring[b]");
    assert!(!store.allows("ada", Privilege::Read, Some("b")));
    assert!(store.allows("^ada", Privilege::Read, Some("b")));
    // The local user's password is nothing for the directory.
    assert!(!store.asks_directory("ada"));
    assert!(store.asks_directory("bob"));
    for name in ["", "^bob", "a\nb", "kedge.cluster", &"x".repeat(129)] {
        assert!(!store.asks_directory(name), "{name:?}");
        assert!(
            store
                .set_external_user(name, &change("", &[]), ADMIN)
                .is_err(),
            "{name:?}"
        );
    }
    store.set_ldap(Some(LdapSettings {
        authentication_enabled: false,
        ..ldap()
    }));
    assert!(!store.asks_directory("bob"));
    // No local user looks like an external one.
    let refused = store.add("^bob", "secret", Roles::admin(), 1);
    assert!(matches!(refused, Err(AuthError::BadName(_))), "{refused:?}");
    assert_eq!(
        (external_name("^bob"), external_name("bob")),
        (Some("bob"), None)
    );
}

/// A release that knew no external users let an administrator add such a name.
#[test]
fn stored_local_user_with_an_external_id_cannot_log_in() {
    let mut store = UserStore::new().unwrap();
    store.add("xbob", "secret", Roles::admin(), 1).unwrap();
    let store = UserStore::from_json(&store.to_json().replace("\"xbob\"", "\"^bob\"")).unwrap();
    assert!(!store.verify_password("^bob", b"secret"));
    assert!(!super::logs_in(&store, "^bob", "secret"));
}

#[test]
fn only_a_full_administrator_gives_guarded_roles_to_external_users() {
    let by: Privileges = "security_admin".parse::<Roles>().unwrap().privileges(None);
    let mut store = store();
    let set = |store: &mut UserStore, roles: &str| {
        store.set_external_user("eve", &change(roles, &[]), by)
    };
    assert_eq!(set(&mut store.clone(), "admin"), Err(AuthError::Guarded));
    assert_eq!(set(&mut store, "data_reader[b]"), Ok(()));
    store
        .set_external_user("eve", &change("admin", &[]), ADMIN)
        .unwrap();
    assert_eq!(
        store.remove_external_user("eve", by),
        Err(AuthError::Guarded)
    );
}

#[test]
fn external_users_and_settings_survive_in_both_stored_forms() {
    let store = store();
    let text = store.to_json();
    assert!(text.contains("\"version\": 5"), "{text}");
    let read = UserStore::from_json(&text).unwrap();
    assert_eq!(read.to_json(), text);
    assert_eq!(read.ldap().map(|ldap| (**ldap).clone()), Some(ldap()));

    let shared = store.into_shared(UsersRevision {
        cluster: "c".to_owned(),
        generation: "1".to_owned(),
        revision: 3,
    });
    let documents = shared.to_documents();
    assert!(documents.contains_key("1/external/ada"));
    let followed = UserStore::new()
        .unwrap()
        .with_documents(&documents)
        .unwrap()
        .unwrap();
    assert_eq!(followed.to_documents(), documents);
    assert_eq!(followed.roles_of("^ada"), shared.roles_of("^ada"));
    // A release without external users must not follow these, and put them back without the external ones.
    let common = String::from_utf8(documents[COMMON_DOCUMENT].clone()).unwrap();
    assert!(common.contains("\"version\":2"), "{common}");
}

#[test]
fn stores_without_external_users_have_the_form_of_earlier_releases() {
    let mut store = store();
    store.remove_external_user("ada", ADMIN).unwrap();
    store.set_ldap(None);
    let text = store.to_json();
    assert!(
        text.contains("\"version\": 4") && !text.contains("external"),
        "{text}"
    );
}

#[test]
fn login_that_was_checked_elsewhere_ends_at_once() {
    let end = |outcome| ServerSession::checked_elsewhere(Mechanism::Plain, "ada", outcome);
    let (session, step) = end(Ok("^ada".to_owned()));
    assert!(matches!(step, ServerStep::Done { user, .. } if user == "^ada"));
    assert_eq!(
        (session.claimed_user(), session.failure()),
        (Some("ada"), None)
    );
    let (session, step) = end(Err(LoginFailure::Unavailable));
    assert_eq!(step, ServerStep::Failed);
    assert_eq!(session.failure(), Some(LoginFailure::Unavailable));
}

#[test]
fn token_gives_roles_and_local_groups_while_tokens_are_accepted() {
    let mut store = store();
    let grants = ExternalGrants {
        groups: ["devs".to_owned(), "missing".to_owned()].into(),
        roles: ["data_monitoring[b]".to_owned(), "gone".to_owned()].into(),
        expires_at_s: Some(1),
        ..ExternalGrants::default()
    };
    let roles = |store: &UserStore| store.roles_of_login("^eve", Some(&grants)).to_string();
    assert_eq!(roles(&store), "");
    let settings = kedge_auth::JwtSettings {
        enabled: true,
        issuers: Vec::new(),
    };
    store.set_jwt(Some(settings)).unwrap();
    assert_eq!(roles(&store), "data_writer[b],data_monitoring[b]");
    let read = UserStore::from_json(&store.to_json()).unwrap();
    assert_eq!(roles(&read), roles(&store));
}
