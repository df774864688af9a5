//! The contract against etcd, and what can happen to etcd: members that fail, compaction, TLS, users, restored backups.
//! Each test runs against Debian's etcd and a current one, which `tests/run prepare etcd` installs.

mod admin;
#[path = "../contract/mod.rs"]
mod contract;
mod members;
mod restore;
mod security;
mod servers;
mod slow_disks;

use kedge_coordination::etcd::{Etcd, EtcdConfig};
use kedge_coordination::{Coordinator, StorePosition};

use contract::Store;
use servers::{Release, Servers};

/// A prefix of etcd with one member.
pub(crate) struct EtcdStore {
    servers: Servers,
}

impl EtcdStore {
    fn start(release: Release) -> Self {
        let servers = Servers::start(release, 1);
        EtcdStore { servers }
    }
}

impl Store for EtcdStore {
    fn open_seen(&self, seen: Option<StorePosition>) -> Box<dyn Coordinator> {
        Box::new(open(self.servers.config(), seen))
    }

    fn forget_history(&self) {
        let now = self.open().read(contract::LONG).expect("readable");
        admin::compact(&self.servers, now.revision());
    }
}

pub(crate) fn open(config: EtcdConfig, seen: Option<StorePosition>) -> Etcd {
    Etcd::new(config, seen).expect("a thread for the client")
}

/// Defines tests that run a function against each release of etcd.
macro_rules! on_each_release {
    ($($module:ident::$name:ident)*) => {
        mod debian {
            crate::contract::contract!(crate::EtcdStore::start(crate::Release::Debian));
            $(
                #[test]
                fn $name() {
                    crate::$module::$name(crate::Release::Debian);
                }
            )*
        }
        mod current {
            crate::contract::contract!(crate::EtcdStore::start(crate::Release::Current));
            $(
                #[test]
                fn $name() {
                    crate::$module::$name(crate::Release::Current);
                }
            )*
        }
    };
}

on_each_release! {
    members::killed_leaders_lose_no_change
    members::paused_leader_does_not_end_a_lease_that_is_renewed
    members::store_without_a_quorum_is_unreachable
    members::watch_moves_on_from_a_paused_member
    members::watch_resumes_after_a_restart_of_etcd
    members::watch_reports_a_compaction_while_it_was_disconnected
    members::large_answers_are_received
    restore::restored_backup_is_reported
    restore::restored_backup_with_another_token_is_reported
    security::connections_use_certificates
    security::users_have_permissions
    security::expired_tokens_are_replaced
    slow_disks::leases_are_renewed_while_the_disks_of_all_members_are_slow
}
