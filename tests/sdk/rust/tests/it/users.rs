//! Users, groups and roles over the management API, and what a role lets its user do.

use std::time::Duration;

use couchbase::error::ErrorKind;
use couchbase::management::users::user::{Group, Role, User};
use couchbase::options::kv_options::UpsertOptions;
use serde_json::json;

use crate::server::BUCKET;
use crate::{connect, fail_fast, setup, want_content, want_error, within};

fn reader() -> Role {
    Role::new("data_reader").bucket(BUCKET)
}

/// The same role as the server lists it: `*` stands for parameters that were not given.
fn listed_reader() -> Role {
    reader().scope("*").collection("*")
}

#[tokio::test(flavor = "multi_thread")]
async fn users_and_groups() {
    let setup = setup().await;
    let manager = setup.cluster.users();
    let group = Group::new("readers", "may read", vec![reader()]);
    within(manager.upsert_group(group, None)).await.unwrap();
    let stored = within(manager.get_group("readers", None)).await.unwrap();
    assert_eq!(stored.description.as_deref(), Some("may read"));
    assert_eq!(stored.roles, [listed_reader()]);
    let groups = within(manager.get_all_groups(None)).await.unwrap();
    assert_eq!(groups.len(), 1);

    let ada = User::new("ada", "Ada", vec![])
        .password("secret")
        .add_group("readers");
    within(manager.upsert_user(ada, None)).await.unwrap();
    let found = within(manager.get_user("ada", None)).await.unwrap();
    assert_eq!(found.user.display_name, "Ada");
    assert_eq!(found.user.groups, ["readers"]);
    let mut effective = found.effective_roles.iter();
    assert!(effective.any(|one| one.role == listed_reader()));
    let all = within(manager.get_all_users(None)).await.unwrap();
    assert!(all.iter().any(|one| one.user.username == "ada"));

    within(manager.drop_group("readers", None)).await.unwrap();
    want_error(
        within(manager.get_group("readers", None)).await,
        ErrorKind::GroupNotFound,
    );
    let found = within(manager.get_user("ada", None)).await.unwrap();
    assert!(found.user.groups.is_empty());
    within(manager.drop_user("ada", None)).await.unwrap();
    want_error(
        within(manager.get_user("ada", None)).await,
        ErrorKind::UserNotFound,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_listed() {
    let setup = setup().await;
    let roles = within(setup.cluster.users().get_roles(None)).await.unwrap();
    for name in ["admin", "data_reader", "data_writer", "scope_admin"] {
        assert!(roles.iter().any(|one| one.role.name == name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_changes_its_own_password() {
    let setup = setup().await;
    within(setup.collection.upsert("key", 1, None))
        .await
        .unwrap();
    let user = User::new("ada", "Ada", vec![reader()]).password("secret");
    let manager = setup.cluster.users();
    within(manager.upsert_user(user, None)).await.unwrap();
    let before = connect(&setup.server, "ada", "secret").await.unwrap();
    let changed = before.users().change_password("other secret", None).await;
    changed.unwrap();
    // The SDK goes on trying, whatever the server answered; what a caller sees is its own timeout.
    let wrong = connect(&setup.server, "ada", "secret");
    let wrong = tokio::time::timeout(Duration::from_secs(1), wrong).await;
    assert!(!matches!(wrong, Ok(Ok(_))));
    let after = connect(&setup.server, "ada", "other secret").await.unwrap();
    let mine = after.bucket(BUCKET).default_collection();
    want_content(&mine, "key", json!(1)).await;
    let found = within(manager.get_user("ada", None)).await.unwrap();
    assert_eq!(found.user.display_name, "Ada");
    assert_eq!(found.user.roles, [listed_reader()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_reads_and_does_not_write() {
    let setup = setup().await;
    within(setup.collection.upsert("key", 1, None))
        .await
        .unwrap();
    let user = User::new("ada", "", vec![reader()]).password("secret");
    let manager = setup.cluster.users();
    within(manager.upsert_user(user, None)).await.unwrap();
    let own = connect(&setup.server, "ada", "secret").await.unwrap();
    let mine = own.bucket(BUCKET).default_collection();
    want_content(&mine, "key", json!(1)).await;
    let options = UpsertOptions::new().retry_strategy(fail_fast());
    assert!(within(mine.upsert("key", 2, options)).await.is_err());
    want_content(&setup.collection, "key", json!(1)).await;
}
