//! The nodes of `cluster-run`: they are made once; later only their ports may change.

use std::net::TcpListener;
use std::path::Path;

use kedge_bucket::BucketConfig;
use kedge_cluster::{ClusterMap, CompatLevel, MapNode, SERVER_GROUP, TlsPorts};
use kedge_coordination::StoreAddress;
use kedge_coordinator::cluster::{self, MAP_FILE, new_uuid};

use super::{KV_PORT, MGMT_PORT, RunError};

/// The range that is searched for free ports: below those that systems give to outgoing connections.
const FREE_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The options of the command line; `None` for one that is not given.
#[derive(Clone, Debug)]
pub(super) struct LayoutOptions {
    pub(super) nodes: Option<u16>,
    pub(super) replicas: Option<u8>,
    pub(super) kv_port: Option<u16>,
    pub(super) mgmt_port: Option<u16>,
    /// True if key-value is served over TLS only.
    pub(super) kv_is_tls: bool,
    /// True if management is served over TLS only.
    pub(super) mgmt_is_tls: bool,
    pub(super) host: String,
    pub(super) bucket: Option<BucketConfig>,
    /// The compatibility level of a new cluster.
    pub(super) level: CompatLevel,
}

/// Returns the nodes of the cluster in the store, with the ports that they are to have. Creates the cluster if there is
/// none.
pub(super) fn prepare(
    store: &StoreAddress,
    data_dir: &Path,
    wanted: &LayoutOptions,
) -> Result<Vec<MapNode>, RunError> {
    if let Some(map) = cluster::stored_map(store)? {
        return plan(Some(&map), wanted);
    }
    let nodes = plan(None, wanted)?;
    for node in &nodes {
        let file = data_dir.join(&node.name).join(MAP_FILE);
        if file.exists() {
            return Err(RunError::Usage(format!(
                "{} is that of a cluster, and the coordination store has none: give --coordinator as before, or another \
                 --data-dir",
                file.display()
            )));
        }
    }
    let replicas = wanted.replicas.unwrap_or(1);
    let map = cluster::first_map(nodes, replicas, wanted.bucket.as_ref(), wanted.level)?;
    let map = cluster::create(store, &map)?;
    plan(Some(&map), wanted)
}

/// Returns the wanted nodes.
fn plan(before: Option<&ClusterMap>, wanted: &LayoutOptions) -> Result<Vec<MapNode>, RunError> {
    let had: Option<Vec<&MapNode>> = before.map(|map| map.nodes.values().collect());
    let count = had.as_ref().map_or(wanted.nodes.unwrap_or(2), |nodes| {
        u16::try_from(nodes.len()).unwrap_or(u16::MAX)
    });
    let differs = |what: &str, has: u16, wanted: Option<u16>| match wanted {
        Some(wanted) if wanted != has => Err(RunError::Usage(format!(
            "the cluster of this directory has {has} {what}, not {wanted}; that cannot be changed"
        ))),
        _ => Ok(()),
    };
    differs("nodes", count, wanted.nodes)?;
    if let Some(map) = before {
        differs(
            "replicas",
            u16::from(map.replicas),
            wanted.replicas.map(u16::from),
        )?;
    }
    let ports_of = |of: fn(&MapNode) -> u16| {
        let nodes = had.as_ref()?;
        Some(nodes.iter().map(|node| of(node)).collect::<Vec<u16>>())
    };
    let kv = ports(
        count,
        wanted.kv_port,
        KV_PORT,
        2,
        ports_of(|node| match node.kv_port {
            0 => node.tls.kv,
            port => port,
        }),
        &[],
    )?;
    let mgmt = ports(
        count,
        wanted.mgmt_port,
        MGMT_PORT,
        1,
        ports_of(|node| match node.mgmt_port {
            0 => node.tls.mgmt,
            port => port,
        }),
        &kv,
    )?;
    let node = |(at, (kv, mgmt)): (usize, (u16, u16))| {
        let mut node = match &had {
            Some(nodes) => nodes[at].clone(),
            None => new_node(at),
        };
        node.host.clone_from(&wanted.host);
        (node.kv_port, node.tls.kv) = place(wanted.kv_is_tls, kv);
        (node.mgmt_port, node.tls.mgmt) = place(wanted.mgmt_is_tls, mgmt);
        node
    };
    Ok(kv.into_iter().zip(mgmt).enumerate().map(node).collect())
}

fn new_node(at: usize) -> MapNode {
    MapNode {
        name: format!("n_{at}"),
        uuid: new_uuid(),
        host: String::new(),
        kv_port: 0,
        mgmt_port: 0,
        tls: TlsPorts::default(),
        external: None,
        server_group: SERVER_GROUP.to_owned(),
        failed: false,
    }
}

/// Returns the port of a protocol without TLS, and with it. A node that has the first one chooses the other by itself.
fn place(is_tls: bool, port: u16) -> (u16, u16) {
    if is_tls { (0, port) } else { (port, 0) }
}

/// Returns a port for each node: from the given one on; any free ones for 0; those that they had; or the default ones.
fn ports(
    count: u16,
    wanted: Option<u16>,
    default: u16,
    apart: u16,
    before: Option<Vec<u16>>,
    taken: &[u16],
) -> Result<Vec<u16>, RunError> {
    let first = match (wanted, before) {
        (Some(0) | None, Some(before)) => return Ok(before),
        (Some(0), None) => return Ok(free_ports(count, taken)),
        (Some(first), _) => first,
        (None, None) => default,
    };
    let port = |at: u16| first.checked_add(at.checked_mul(apart)?);
    let ports: Option<Vec<u16>> = (0..count).map(port).collect();
    ports.ok_or_else(|| RunError::Usage(format!("{count} nodes from port {first} on are too many")))
}

/// Finds ports that are free at this moment.
fn free_ports(count: u16, taken: &[u16]) -> Vec<u16> {
    let len = FREE_PORTS.end - FREE_PORTS.start;
    let random = getrandom::u32().unwrap_or_default();
    let start = u16::try_from(random % u32::from(len)).unwrap_or_default();
    let mut held = Vec::new();
    for at in 0..len {
        let port = FREE_PORTS.start + (start + at) % len;
        if held.len() == usize::from(count) {
            break;
        }
        if let (false, Ok(socket)) = (
            taken.contains(&port),
            TcpListener::bind(("127.0.0.1", port)),
        ) {
            held.push((port, socket));
        }
    }
    held.into_iter().map(|(port, _)| port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(nodes: Option<u16>, kv_port: Option<u16>) -> LayoutOptions {
        LayoutOptions {
            nodes,
            replicas: None,
            kv_port,
            mgmt_port: kv_port.map(|_| 0),
            kv_is_tls: false,
            mgmt_is_tls: false,
            host: "127.0.0.1".to_owned(),
            bucket: Some(BucketConfig::new("default", 8, 0)),
            level: CompatLevel::HIGHEST,
        }
    }

    fn kv(nodes: &[MapNode]) -> Vec<u16> {
        nodes.iter().map(|node| node.kv_port).collect()
    }

    #[test]
    fn cluster_of_a_store_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = StoreAddress::from(&*dir.path().join("coordinator"));
        let prepare = |wanted: &LayoutOptions| prepare(&store, dir.path(), wanted);
        let first = prepare(&wanted(Some(3), None)).expect("made");
        assert_eq!(kv(&first), [12_000, 12_002, 12_004]);
        let mgmt: Vec<u16> = first.iter().map(|node| node.mgmt_port).collect();
        assert_eq!(mgmt, [9_000, 9_001, 9_002]);
        let map = cluster::stored_map(&store).expect("read").expect("a map");
        assert_eq!((map.replicas, map.buckets[0].replicas()), (1, 1));
        assert_eq!(prepare(&wanted(None, None)).expect("read"), first);
        let moved = prepare(&wanted(Some(3), Some(400))).expect("moved");
        assert_eq!(kv(&moved), [400, 402, 404]);
        assert_eq!(moved[1].uuid, first[1].uuid);
        // Any free ports: those of the map are as good.
        assert_eq!(
            kv(&prepare(&wanted(None, Some(0))).expect("read")),
            kv(&first)
        );
        let error = prepare(&wanted(Some(2), None)).expect_err("another number");
        assert!(error.to_string().contains("has 3 nodes, not 2"), "{error}");
    }

    #[test]
    fn directory_of_another_store_makes_no_new_cluster() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = StoreAddress::from(&*dir.path().join("coordinator"));
        std::fs::create_dir(dir.path().join("n_1")).expect("made");
        std::fs::write(dir.path().join("n_1").join(MAP_FILE), "{}").expect("written");
        let error = prepare(&store, dir.path(), &wanted(None, None)).expect_err("refused");
        assert!(error.to_string().contains("has none"), "{error}");
        assert!(cluster::stored_map(&store).expect("read").is_none());
    }

    #[test]
    fn nodes_without_plain_ports_have_these_with_tls() {
        let mut wanted = wanted(Some(2), Some(400));
        wanted.kv_is_tls = true;
        let nodes = plan(None, &wanted).expect("planned");
        let kv: Vec<(u16, u16)> = nodes.iter().map(|it| (it.kv_port, it.tls.kv)).collect();
        assert_eq!(kv, [(0, 400), (0, 402)]);
        assert!(nodes.iter().all(|it| it.mgmt_port > 0 && it.tls.mgmt == 0));
        let map = cluster::first_map(nodes.clone(), 1, None, CompatLevel::HIGHEST).expect("a map");
        wanted.kv_port = None;
        assert_eq!(plan(Some(&map), &wanted).expect("kept"), nodes);
    }

    #[test]
    fn free_ports_are_distinct() {
        let nodes = plan(None, &wanted(Some(5), Some(0))).expect("planned");
        let ports = nodes.iter().flat_map(|node| [node.kv_port, node.mgmt_port]);
        let ports: std::collections::BTreeSet<u16> = ports.collect();
        assert_eq!(ports.len(), 10);
        let beyond = plan(None, &wanted(Some(5), Some(65_530)));
        beyond.expect_err("there is no port 65538");
    }
}
