//! The cluster as management sees it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kedge_bucket::{BucketChange, BucketConfig};
use kedge_cluster::{
    AutoFailoverEdit, AutoFailoverSettings, ClusterError, ClusterMap, FailoverAttempt, GroupChange,
    ManifestEdit, NodePositions, NodeRecord, RecoveryType, Revision, plan_group_change, plan_hold,
    plan_threads,
};
use kedge_coordination::lease::PromiseRequest;
use kedge_node::coordination::{
    AppliedChange, AutoFailoverStatus, ChangeError, ClusterControl, FailoverConsent, NodeReport,
    StoreStatus,
};
use kedge_types::ManifestUid;
use serde_json::Value;
use tokio::sync::watch;

use super::ClusterNode;

impl ClusterControl for ClusterNode {
    fn map(&self) -> Option<Arc<ClusterMap>> {
        self.followed.map()
    }

    fn applied(&self) -> watch::Receiver<Option<Revision>> {
        self.followed.applied()
    }

    fn report(&self) -> NodeReport {
        Self::report(self)
    }

    fn replicas(&self) -> u8 {
        Self::replicas(self)
    }

    fn others(&self) -> Vec<(String, bool)> {
        self.peers.reached()
    }

    fn is_reached(&self, node: u16) -> bool {
        Self::is_reached(self, node)
    }

    fn is_uuid_reached(&self, uuid: &str) -> bool {
        Self::is_uuid_reached(self, uuid)
    }

    fn figures(&self) -> Value {
        Self::figures(self)
    }

    fn status(&self) -> Option<Value> {
        Self::status(self)
    }

    fn ask(&self, uuid: &str, path: &str) -> Result<Value, String> {
        Self::ask(self, uuid, path)
    }

    fn coordinator(&self) -> StoreStatus {
        Self::coordinator(self)
    }

    fn adopt(&self, map: ClusterMap) -> Result<bool, ClusterError> {
        Self::adopt(self, map)
    }

    fn positions(&self) -> Result<NodePositions, String> {
        Self::positions(self)
    }

    fn fence(&self, node: u16, attempt: FailoverAttempt) -> Result<(), String> {
        Self::fence(self, node, attempt)
    }

    fn promise(&self, node: &str, time: Duration, known: u64) -> Result<(), ChangeError> {
        let known = kedge_coordination::Revision(known);
        Self::promise(self, node, PromiseRequest { time, known })
    }

    fn release_lease(&self, node: &str) -> Result<(), ChangeError> {
        let map = self.followed.map().ok_or(ChangeError::NotBegun)?;
        let me = self.followed.member(&map)?;
        self.failovers.release_lease((&map, me), node)
    }

    fn lift_fences(&self, attempt: FailoverAttempt) {
        Self::lift_fences(self, attempt);
    }

    fn fail_over(
        &self,
        name: &str,
        accepts: FailoverConsent,
    ) -> Result<AppliedChange, ChangeError> {
        Self::fail_over(self, name, accepts)
    }

    fn recover(&self, name: &str, recovery: RecoveryType) -> Result<AppliedChange, ChangeError> {
        Self::recover(self, name, recovery)
    }

    fn set_recovery_type(
        &self,
        name: &str,
        recovery: Option<RecoveryType>,
    ) -> Result<AppliedChange, ChangeError> {
        super::membership::set_recovery_type(self, name, recovery)
    }

    fn waiting_nodes(&self) -> Result<BTreeMap<String, NodeRecord>, ChangeError> {
        super::membership::waiting(self)
    }

    fn add_node(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        Self::add_node(self, name)
    }

    fn hold_level(&self, is_held: bool) -> Result<AppliedChange, ChangeError> {
        let applied = self.change_map(|map| Ok(plan_hold(map, is_held)))?;
        tracing::info!(is_held, "the hold of the compatibility level is changed");
        Ok(applied)
    }

    fn remove_node(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        Self::remove_node(self, name)
    }

    fn move_vbucket(&self, bucket: &str, vb: u16, to: &str) -> Result<AppliedChange, ChangeError> {
        Self::move_vbucket(self, bucket, vb, to)
    }

    fn balance(&self) -> Result<AppliedChange, ChangeError> {
        Self::balance(self)
    }

    fn start_rebalance(&self, remove: &[String]) -> Result<AppliedChange, ChangeError> {
        super::rebalance::start(self, remove)
    }

    fn drain(&self, names: &[String], fails_over: bool) -> Result<AppliedChange, ChangeError> {
        super::rebalance::drain(self, names, fails_over)
    }

    fn stop_rebalance(&self) -> Result<AppliedChange, ChangeError> {
        super::rebalance::stop(self)
    }

    fn limit_moves(&self, per_node: u8) -> Result<AppliedChange, ChangeError> {
        super::rebalance::limit_moves(self, per_node)
    }

    fn set_threads(
        &self,
        changes: &BTreeMap<String, String>,
    ) -> Result<AppliedChange, ChangeError> {
        self.change_map(|map| Ok(plan_threads(map, changes)?))
    }

    fn change_groups(&self, change: &GroupChange) -> Result<AppliedChange, ChangeError> {
        let applied = self.change_map(|map| Ok(plan_group_change(map, change)?))?;
        tracing::info!(
            rev = applied.revision.rev,
            ?change,
            "server groups were changed"
        );
        Ok(applied)
    }

    fn create_bucket(&self, config: &BucketConfig) -> Result<AppliedChange, ChangeError> {
        Self::create_bucket(self, config)
    }

    fn update_bucket(
        &self,
        name: &str,
        change: &BucketChange,
    ) -> Result<AppliedChange, ChangeError> {
        Self::update_bucket(self, name, change)
    }

    fn drop_bucket(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        Self::drop_bucket(self, name)
    }

    fn edit_manifest(
        &self,
        name: &str,
        edit: &ManifestEdit,
    ) -> Result<(AppliedChange, ManifestUid), ChangeError> {
        Self::edit_manifest(self, name, edit)
    }

    fn give_to_all(&self) -> Result<Vec<String>, ChangeError> {
        Self::give_to_all(self)
    }

    fn rename(&self, name: &str) -> Result<AppliedChange, ChangeError> {
        Self::rename(self, name)
    }

    fn auto_failover(&self) -> Result<AutoFailoverSettings, ChangeError> {
        self.failovers.settings()
    }

    fn auto_failover_status(&self) -> AutoFailoverStatus {
        self.failovers.status()
    }

    fn edit_auto_failover(
        &self,
        edit: &AutoFailoverEdit,
    ) -> Result<AutoFailoverSettings, ChangeError> {
        self.failovers.edit(edit)
    }

    fn repeat(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<(), ChangeError> {
        Self::repeat(self, method, path, content_type, body)
    }

    fn require_all(&self, map: &ClusterMap) -> Result<(), ChangeError> {
        self.peers.require_all(map)
    }
}
