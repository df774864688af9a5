//! Backups of etcd that are restored: revisions go backwards.

use std::path::PathBuf;

use kedge_coordination::{CoordinationError, Coordinator as _, ReadAgain, WatchEvent};

use crate::contract::{LONG, put, value};
use crate::open;
use crate::servers::{Release, Servers, run};

fn save_snapshot(servers: &Servers) -> PathBuf {
    let file = servers.dir.path().join("snapshot");
    let endpoint = format!("--endpoints={}", servers.members[0].address());
    run(servers
        .release
        .etcdctl()
        .arg(endpoint)
        .args(["snapshot", "save"])
        .arg(&file));
    file
}

/// Puts the snapshot in the place of the member's data.
fn restore(servers: &mut Servers, file: &PathBuf, token: &str) {
    servers.kill(0);
    let data = servers.dir.path().join("restored");
    run(servers
        .release
        .restorer()
        .args(["snapshot", "restore"])
        .arg(file)
        .arg("--name=m0")
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--initial-cluster={}", servers.initial_cluster()))
        .arg(format!(
            "--initial-advertise-peer-urls={}",
            servers.members[0].peer_url()
        ))
        .arg(format!("--initial-cluster-token={token}")));
    servers.members[0].data = data;
    servers.start_member(0);
}

fn check_restore(release: Release, token: &str, is_same_store: bool) {
    let mut servers = Servers::start(release, 1);
    let store = open(servers.config(), None);
    put(&store, "a", "backed up");
    let file = save_snapshot(&servers);
    for _ in 0..20 {
        put(&store, "a", "lost");
    }
    let seen = store.seen().expect("it has seen the changes");
    let mut watch = store.watch(seen.revision).expect("watched");
    assert_eq!(watch.next(LONG / 100).expect("watched"), None);
    restore(&mut servers, &file, token);

    let error = loop {
        match store.read(LONG) {
            Err(CoordinationError::Unreachable(_)) => {}
            other => break other.expect_err("the state is an older one"),
        }
    };
    let CoordinationError::WentBackwards { found, .. } = error else {
        panic!("{error}");
    };
    assert!(found.revision < seen.revision);
    assert_eq!(found.store == seen.store, is_same_store);
    let event = loop {
        match watch.next(LONG) {
            Ok(Some(event)) => break event,
            Ok(None) | Err(CoordinationError::Unreachable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(event, WatchEvent::ReadAgain(ReadAgain::WentBackwards));

    // A process that was restarted meanwhile notices it, too, and one that has decided to go on can.
    let error = open(servers.config(), Some(seen)).read(LONG);
    let error = error.expect_err("the state is an older one");
    assert!(
        matches!(error, CoordinationError::WentBackwards { .. }),
        "{error}"
    );
    let fresh = open(servers.config(), None);
    assert_eq!(value(&fresh, "a").as_deref(), Some(&b"backed up"[..]));
}

pub(crate) fn restored_backup_is_reported(release: Release) {
    check_restore(release, "etcd-cluster", true);
}

pub(crate) fn restored_backup_with_another_token_is_reported(release: Release) {
    check_restore(release, "restored-once", false);
}
