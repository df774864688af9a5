//! The documents about nodes and buckets.
//!
//! Names and forms are those of Couchbase Server's REST interface, `GET /pools/default` and
//! `GET /pools/default/buckets/BUCKET`. A figure that is not measured is absent, not invented.

use std::sync::Arc;

use kedge_bucket::{BucketConfig, CompactionConfig};
use kedge_cluster::{
    BUCKET_CAPABILITIES, CLAIMED_COMPATIBILITY, CLAIMED_VERSION, ClusterMap, ClusterSnapshot,
    NODE_SERVICES, NodeView, Ports, ServerMap, socket_text,
};
use kedge_node::machine;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::backend::BucketFacts;
use super::bucket_form::{NEVER, purge_days};
use super::encryption;
use super::node_names::Membership;
use super::state::HttpState;

/// The sources of documents: the state, the cluster at one revision, and the host that the caller reached.
pub(crate) struct DocumentComposer<'a> {
    pub(crate) state: &'a HttpState,
    pub(crate) cluster: &'a ClusterSnapshot,
    pub(crate) host: &'a str,
}

/// Returns the ports of a node in its document. Only those that it serves are named.
fn ports(ports: Ports) -> Value {
    let mut named = Map::new();
    for (name, port) in [("direct", ports.kv), ("httpsMgmt", ports.mgmt_tls)] {
        if port != 0 {
            named.insert(name.to_owned(), port.into());
        }
    }
    named.into()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketDocument {
    name: String,
    node_locator: &'static str,
    bucket_type: &'static str,
    storage_backend: &'static str,
    uuid: String,
    uri: String,
    streaming_uri: String,
    #[serde(rename = "numVBuckets")]
    num_vbuckets: u16,
    bucket_capabilities_ver: &'static str,
    bucket_capabilities: &'static [&'static str],
    collections_manifest_uid: String,
    #[serde(rename = "vBucketServerMap")]
    server_map: ServerMap,
    auth_type: &'static str,
    auto_compaction_settings: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    purge_interval: Option<f64>,
    replica_index: bool,
    quota: Value,
    basic_stats: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    encryption_at_rest_info: Option<Value>,
    conflict_resolution_type: &'static str,
    #[serde(flatten)]
    settings: Map<String, Value>,
    nodes: Vec<Value>,
    controllers: Value,
    stats: Value,
}

fn basic_stats(facts: &BucketFacts) -> Value {
    let quota = facts.config.quota_bytes.max(1);
    json!({
        "quotaPercentUsed": facts.mem_used_bytes as f64 * 100.0 / quota as f64,
        "itemCount": facts.items,
        "memUsed": facts.mem_used_bytes,
        "diskUsed": facts.disk_bytes,
    })
}

/// Returns the bucket's own settings of automatic compaction; none if all of them have their defaults.
fn own_compaction(config: &CompactionConfig) -> Option<(Value, f64)> {
    let defaults = CompactionConfig::default();
    let own = |it: &CompactionConfig| {
        let when = (it.fragmentation_percent, it.garbage_bytes, it.hours);
        (when, it.purge_age_secs)
    };
    if own(config) == own(&defaults) {
        return None;
    }
    let percentage = match config.fragmentation_percent {
        NEVER => json!("undefined"),
        percent => json!(percent),
    };
    let size = config.garbage_bytes;
    let size = size.map_or_else(|| json!("undefined"), |bytes| json!(bytes));
    let mut settings = json!({
        "parallelDBAndViewCompaction": false,
        "databaseFragmentationThreshold": { "percentage": percentage, "size": size },
        "viewFragmentationThreshold": { "percentage": "undefined", "size": "undefined" },
    });
    if let Some(hours) = config.hours {
        settings["allowedTimePeriod"] = json!({
            "fromHour": hours.from_minute / 60,
            "fromMinute": hours.from_minute % 60,
            "toHour": hours.to_minute / 60,
            "toMinute": hours.to_minute % 60,
            "abortOutside": hours.abort_outside,
        });
    }
    Some((settings, purge_days(config.purge_age_secs)))
}

/// Returns the settings with a form field of their own.
fn settings(config: &BucketConfig) -> Map<String, Value> {
    let fields = BucketConfig::table().filter_map(|row| row.field.as_ref());
    let shown = fields.filter_map(|it| Some((it.name.to_owned(), (it.show)(config)?)));
    shown.collect()
}

fn controllers(config: &BucketConfig, uri: &str) -> Value {
    let at = |name: &str| format!("{uri}/controller/{name}");
    let mut controllers = json!({
        "compactAll": at("compactBucket"),
        "compactDB": at("compactDatabases"),
        "purgeDeletes": at("unsafePurgeBucket"),
    });
    // Clients derive from the controller whether the bucket can be flushed.
    if config.flush_enabled {
        controllers["flush"] = at("doFlush").into();
    }
    controllers
}

/// Returns the name of a bucket in a path: `%` is the only character of a bucket's name that a path cannot contain.
pub(crate) fn path_text(name: &str) -> String {
    name.replace('%', "%25")
}

/// Returns the places of the requests for members.
fn membership_controllers() -> Value {
    let names = [
        "addNode",
        "rebalance",
        "failOver",
        "startGracefulFailover",
        "reAddNode",
        "reFailOver",
        "ejectNode",
        "setRecoveryType",
    ];
    let place = |name: &str| {
        (
            name.to_owned(),
            json!({ "uri": format!("/controller/{name}") }),
        )
    };
    Value::Object(names.into_iter().map(place).collect())
}

impl DocumentComposer<'_> {
    /// Returns the document of one bucket.
    pub(crate) fn bucket(&self, facts: &BucketFacts) -> BucketDocument {
        let config = &facts.config;
        let path = path_text(&config.name);
        let uri = format!("/pools/default/buckets/{path}");
        let quota = config.quota_bytes;
        let all_nodes = self.cluster.nodes().list.len().max(1) as u64;
        let compaction = own_compaction(&config.compaction);
        BucketDocument {
            name: config.name.clone(),
            node_locator: "vbucket",
            bucket_type: "membase",
            storage_backend: "couchstore",
            uuid: config.uuid.clone(),
            streaming_uri: format!(
                "/pools/default/bucketsStreaming/{path}?bucket_uuid={}",
                config.uuid
            ),
            num_vbuckets: config.vbuckets,
            bucket_capabilities_ver: "",
            bucket_capabilities: BUCKET_CAPABILITIES,
            collections_manifest_uid: {
                let shown = self.cluster.bucket(&config.name);
                format!("{:x}", shown.map_or(0, |shown| shown.manifest_uid))
            },
            server_map: self
                .cluster
                .server_map(&config.name, config.vbuckets, self.host),
            auth_type: "sasl",
            purge_interval: compaction.as_ref().map(|(_, days)| *days),
            auto_compaction_settings: compaction.map_or(json!(false), |(settings, _)| settings),
            replica_index: false,
            quota: json!({ "ram": quota * all_nodes, "rawRAM": quota }),
            basic_stats: basic_stats(facts),
            encryption_at_rest_info: facts.encryption.as_ref().map(encryption::info),
            conflict_resolution_type: config.conflict_resolution.form_name(),
            settings: settings(config),
            nodes: self.nodes(facts.loading),
            controllers: controllers(config, &uri),
            stats: json!({
                "uri": format!("{uri}/stats"),
                "nodeStatsListURI": format!("{uri}/nodes"),
            }),
            uri,
        }
    }

    /// Returns the documents of all nodes, in the order of the map. `loading` is true if this one is still reading the
    /// requested bucket.
    pub(crate) fn nodes(&self, loading: bool) -> Vec<Value> {
        let nodes = self.cluster.nodes();
        let node = |(at, node): (usize, &NodeView)| {
            let mut document = self.node(node);
            if nodes.this == Some(at) {
                self.describe_this(&mut document, loading);
            }
            document
        };
        nodes.list.iter().enumerate().map(node).collect()
    }

    /// Returns the documents of all nodes of the cluster, also of those that are failed over.
    pub(crate) fn all_nodes(&self, loading: bool) -> Vec<Value> {
        let mut documents = self.nodes(loading);
        if let Some(map) = self.map() {
            let failed = map.nodes.values().filter(|node| node.failed);
            documents.extend(failed.map(|node| self.node(&NodeView::of(node))));
        }
        documents
    }

    fn map(&self) -> Option<Arc<ClusterMap>> {
        self.state.parts.node.as_ref()?.map()
    }

    /// Returns whether a node can be reached; the only one always can.
    fn is_reached(&self, uuid: &str) -> bool {
        let cluster = self.state.parts.node.as_ref();
        cluster.is_none_or(|cluster| cluster.is_uuid_reached(uuid))
    }

    /// Returns the part of a node's document that all nodes know.
    fn node(&self, node: &NodeView) -> Value {
        let host = node.host(self.host);
        let management = socket_text(host, node.ports.mgmt_listed());
        let map = self.map();
        let member = map.as_deref().and_then(|map| {
            let found = map.nodes.iter().find(|(_, it)| it.uuid == node.uuid);
            found.map(|(number, node)| Membership::of(map, *number, node, self.host))
        });
        let member = member.unwrap_or_else(|| Membership::alone(host));
        json!({
            "clusterMembership": member.membership,
            "recoveryType": member.recovery,
            "status": if self.is_reached(&node.uuid) { "healthy" } else { "unhealthy" },
            "otpNode": member.otp_name,
            "hostname": management,
            "configuredHostname": management,
            "nodeUUID": node.uuid,
            "clusterCompatibility": CLAIMED_COMPATIBILITY,
            "version": CLAIMED_VERSION,
            "os": std::env::consts::OS,
            "ports": ports(node.ports),
            "services": NODE_SERVICES,
            "serverGroup": node.server_group,
            "addressFamily": if host.contains(':') { "inet6" } else { "inet" },
            "nodeEncryption": false,
        })
    }

    fn describe_this(&self, node: &mut Value, loading: bool) {
        node["thisNode"] = true.into();
        if loading {
            node["status"] = "warmup".into();
        }
        // Text, not a number: SDKs read it as such.
        node["uptime"] = self.state.started.elapsed().as_secs().to_string().into();
        if let Some(memory) = machine::memory() {
            node["memoryTotal"] = memory.total.into();
            node["memoryFree"] = memory.available.into();
        }
    }

    /// `GET /pools/default`.
    pub(crate) fn cluster(&self) -> Value {
        let buckets = self.state.parts.buckets.list();
        let loading = buckets.iter().any(|bucket| bucket.loading);
        let sum = |of: fn(&BucketFacts) -> u64| buckets.iter().map(of).sum::<u64>();
        let quota = sum(|bucket| bucket.config.quota_bytes);
        let mem_used = sum(|bucket| bucket.mem_used_bytes);
        let node = self.state.parts.node.as_ref();
        let is_rebalancing = node.is_some_and(|node| super::rebalance::is_running(&**node));
        let mut ram = json!({
            "quotaTotal": quota,
            "quotaTotalPerNode": quota,
            "quotaUsed": quota,
            "quotaUsedPerNode": quota,
            "usedByData": mem_used,
        });
        if let Some(memory) = machine::memory() {
            ram["total"] = memory.total.into();
            ram["used"] = (memory.total - memory.available.min(memory.total)).into();
        }
        let mut hdd = json!({ "usedByData": sum(|bucket| bucket.disk_bytes) });
        if let Some(room) = machine::room(&self.state.parts.data_dir) {
            hdd["total"] = room.total.into();
            hdd["quotaTotal"] = room.total.into();
            hdd["free"] = room.free.into();
            hdd["used"] = (room.total - room.free.min(room.total)).into();
        }
        let mut pool = json!({
            "name": "default",
            "clusterName": self.cluster.state().cluster_name,
            "nodes": self.all_nodes(loading),
            "buckets": {
                "uri": "/pools/default/buckets",
                "terseBucketsBase": "/pools/default/b/",
                "terseStreamingBucketsBase": "/pools/default/bs/",
            },
            "bucketNames": buckets.iter().map(|bucket| json!({
                "bucketName": bucket.config.name,
                "uuid": bucket.config.uuid,
            })).collect::<Vec<_>>(),
            "balanced": true,
            "rebalanceStatus": if is_rebalancing { "running" } else { "none" },
            "serverGroupsUri": format!("/pools/default/serverGroups?rev={}", self.cluster.revision().rev),
            "rebalanceProgressUri": "/pools/default/rebalanceProgress",
            "tasks": { "uri": "/pools/default/tasks" },
            "checkPermissionsURI": "/pools/default/checkPermissions",
            "maxBucketCount": kedge_types::limits::BUCKETS_MAX,
            "memoryQuota": quota >> 20,
            "storageTotals": { "ram": ram, "hdd": hdd },
        });
        if node.is_some() {
            pool["controllers"] = membership_controllers();
        }
        pool
    }

    /// `GET /pools/default/terseClusterInfo`: the cluster's config in short form.
    pub(crate) fn terse_cluster(&self) -> Value {
        let config = self.cluster.global_config(self.host);
        let mut document: Value =
            serde_json::from_slice(&config.json).expect("the cluster map composes JSON");
        document["orchestrator"] = format!("ns_1@{}", self.host).into();
        document["isBalanced"] = true.into();
        document["clusterCompatVersion"] = "8.0".into();
        document
    }

    /// `GET /pools`.
    pub(crate) fn pools(&self, admin: bool, read_only_admin: bool) -> Value {
        let uuid = &self.cluster.state().cluster_uuid;
        json!({
            "implementationVersion": CLAIMED_VERSION,
            "isAdminCreds": admin,
            "isROAdminCreds": read_only_admin,
            "isEnterprise": true,
            "isDeveloperPreview": false,
            "allowedServices": NODE_SERVICES,
            "uuid": uuid,
            "pools": [{ "name": "default", "uri": format!("/pools/default?uuid={uuid}") }],
        })
    }
}
