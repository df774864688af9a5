//! The part of a cluster configuration that tools need.

use serde::Deserialize;

/// The part of a terse configuration that tools read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketTopology {
    /// Revision of the configuration.
    pub rev: i64,
    /// vBuckets of the bucket; `None` in a configuration without a bucket.
    pub vbuckets: Option<u16>,
    /// Management port of the node that replied, if given.
    pub mgmt_port: Option<u16>,
    /// Port of management over HTTPS of that node, if given.
    pub mgmt_tls_port: Option<u16>,
    /// Key-value addresses of the bucket's nodes, `HOST:PORT`; `$HOST` is the host of the request.
    pub servers: Vec<String>,
    /// For each vBucket the index of its active node in `servers`.
    pub actives: Vec<Option<u16>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerseConfigJson {
    rev: i64,
    #[serde(default)]
    nodes_ext: Vec<NodeExtJson>,
    v_bucket_server_map: Option<VBucketServerMap>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeExtJson {
    #[serde(default)]
    this_node: bool,
    services: ServicePortsJson,
}

#[derive(Deserialize)]
struct ServicePortsJson {
    mgmt: Option<u16>,
    #[serde(rename = "mgmtSSL")]
    mgmt_tls: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VBucketServerMap {
    #[serde(default)]
    server_list: Vec<String>,
    v_bucket_map: Vec<Vec<i32>>,
}

impl BucketTopology {
    /// Reads the JSON of GET_CLUSTER_CONFIG.
    ///
    /// # Errors
    /// The error, for a person.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        let terse: TerseConfigJson =
            serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let node = terse.nodes_ext.iter().find(|node| node.this_node);
        let node = node.or_else(|| terse.nodes_ext.first());
        let vbuckets = match &terse.v_bucket_server_map {
            None => None,
            Some(map) => match u16::try_from(map.v_bucket_map.len()) {
                Ok(count) if count > 0 => Some(count),
                _ => return Err(format!("a map of {} vBuckets", map.v_bucket_map.len())),
            },
        };
        let mgmt_port = node.and_then(|node| node.services.mgmt);
        let mgmt_tls_port = node.and_then(|node| node.services.mgmt_tls);
        let (servers, chains) = terse
            .v_bucket_server_map
            .map_or_else(Default::default, |map| (map.server_list, map.v_bucket_map));
        let active = |chain: &Vec<i32>| {
            let at = u16::try_from(*chain.first()?).ok()?;
            (usize::from(at) < servers.len()).then_some(at)
        };
        Ok(Self {
            rev: terse.rev,
            vbuckets,
            mgmt_port,
            mgmt_tls_port,
            actives: chains.iter().map(active).collect(),
            servers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topology_parses_configurations() {
        let bucket = br#"{"rev":7,"nodesExt":[{"services":{"kv":1,"mgmt":2},"hostname":"a"},
            {"services":{"kv":3,"mgmt":4},"thisNode":true}],"name":"b",
            "vBucketServerMap":{"vBucketMap":[[0,-1],[-1,0],[1,0]],"serverList":["$HOST:1"]}}"#;
        let expected = BucketTopology {
            rev: 7,
            vbuckets: Some(3),
            mgmt_port: Some(4),
            mgmt_tls_port: None,
            servers: vec!["$HOST:1".to_owned()],
            actives: vec![Some(0), None, None],
        };
        assert_eq!(BucketTopology::parse(bucket), Ok(expected));
        let global = br#"{"rev":1,"nodesExt":[{"services":{"kv":1}}]}"#;
        let expected = BucketTopology {
            rev: 1,
            vbuckets: None,
            mgmt_port: None,
            mgmt_tls_port: None,
            servers: Vec::new(),
            actives: Vec::new(),
        };
        assert_eq!(BucketTopology::parse(global), Ok(expected));
        let empty_map = br#"{"rev":1,"vBucketServerMap":{"vBucketMap":[]}}"#;
        assert!(BucketTopology::parse(empty_map).is_err());
        assert!(BucketTopology::parse(b"[]").is_err());
    }
}
