//! Calls of an administrator of etcd, which the store's trait does not have.

use std::future::Future;

use etcd_client::{Client, ConnectOptions, Permission, PermissionType};
use kedge_coordination::Revision;

use crate::servers::Servers;

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(future)
}

pub(crate) fn compact(servers: &Servers, revision: Revision) {
    let address = servers.members[0].address();
    block_on(async {
        let mut client = Client::connect([address], None).await.expect("connected");
        let revision = i64::try_from(revision.0).expect("a small number");
        client.compact(revision, None).await.expect("compacted");
    });
}

/// The member that is the leader, by the word of a member of `asked`.
pub(crate) fn leader(servers: &Servers, asked: &[usize]) -> Option<usize> {
    block_on(async {
        let mut leader = 0;
        let mut ids = Vec::new();
        for n in asked {
            let address = servers.members[*n].address();
            let Ok(mut client) = Client::connect([address], None).await else {
                continue;
            };
            let Ok(status) = client.status().await else {
                continue;
            };
            let id = status.header().expect("a header").member_id();
            ids.push((id, *n));
            leader = status.leader();
        }
        let found = ids.iter().find(|(id, _)| *id == leader);
        found.map(|(_, n)| *n)
    })
}

/// Enables authentication, with a user `kedge` that may use the prefix of the tests.
pub(crate) fn enable_users(servers: &Servers) {
    let address = servers.members[0].address();
    block_on(async {
        let mut client = Client::connect([&address], None).await.expect("connected");
        client.role_add("kedge").await.expect("added");
        let all = Permission::new(PermissionType::Readwrite, "/kedge/test/").with_prefix();
        let granted = client.role_grant_permission("kedge", all).await;
        granted.expect("granted");
        client
            .user_add("kedge", "secret", None)
            .await
            .expect("added");
        client
            .user_grant_role("kedge", "kedge")
            .await
            .expect("granted");
        client.user_add("root", "root", None).await.expect("added");
        client.role_add("root").await.expect("added");
        client
            .user_grant_role("root", "root")
            .await
            .expect("granted");
        client.auth_enable().await.expect("enabled");
        let options = ConnectOptions::new().with_user("root", "root");
        let root = Client::connect([&address], Some(options)).await;
        root.expect("root can log in");
    });
}
