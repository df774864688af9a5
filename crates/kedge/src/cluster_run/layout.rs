//! The cluster file of `cluster-run`: it is made once, with its secret; later only the ports may change.

use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use kedge_cluster::{ClusterFile, ClusterFileNode};

use super::{KV_PORT, MGMT_PORT, RunError};
use crate::serve::read_cluster_file;

/// The range that is searched for free ports: below those that systems give to outgoing connections.
const FREE_PORTS: std::ops::Range<u16> = 20_000..32_000;

/// The options of the command line; `None` for one that is not given.
#[derive(Clone, Debug)]
pub(super) struct LayoutOptions {
    pub(super) nodes: Option<u16>,
    pub(super) replicas: Option<u8>,
    pub(super) kv_port: Option<u16>,
    pub(super) mgmt_port: Option<u16>,
    pub(super) host: String,
}

/// Creates or updates the file at `path`.
pub(super) fn prepare(path: &Path, wanted: &LayoutOptions) -> Result<ClusterFile, RunError> {
    let failed = |source| RunError::Io {
        path: path.to_owned(),
        source,
    };
    let before = match path.exists() {
        true => Some(read_cluster_file(path).map_err(|source| RunError::File {
            path: path.to_owned(),
            source,
        })?),
        false => None,
    };
    let file = plan(before.as_ref(), wanted)?;
    file.check().map_err(|source| RunError::File {
        path: path.to_owned(),
        source,
    })?;
    if before.as_ref() != Some(&file) {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir).map_err(failed)?;
        }
        write(path, &file).map_err(failed)?;
    }
    Ok(file)
}

/// Returns the wanted content of the file.
fn plan(before: Option<&ClusterFile>, wanted: &LayoutOptions) -> Result<ClusterFile, RunError> {
    let count = before.map_or(wanted.nodes.unwrap_or(2), |file| {
        u16::try_from(file.nodes.len()).unwrap_or(u16::MAX)
    });
    let replicas = before.map_or(wanted.replicas.unwrap_or(1), |file| file.replicas);
    let differs = |what: &str, has: u16, wanted: Option<u16>| match wanted {
        Some(wanted) if wanted != has => Err(RunError::Usage(format!(
            "the cluster of this directory has {has} {what}, not {wanted}; that cannot be changed"
        ))),
        _ => Ok(()),
    };
    differs("nodes", count, wanted.nodes)?;
    differs(
        "replicas",
        u16::from(replicas),
        wanted.replicas.map(u16::from),
    )?;
    let had = |of: fn(&ClusterFileNode) -> u16| {
        before.map(|file| file.nodes.iter().map(of).collect::<Vec<u16>>())
    };
    let kv = ports(
        count,
        wanted.kv_port,
        KV_PORT,
        2,
        had(|node| node.kv_port),
        &[],
    )?;
    let mgmt = ports(
        count,
        wanted.mgmt_port,
        MGMT_PORT,
        1,
        had(|node| node.mgmt_port),
        &kv,
    )?;
    let nodes = kv.into_iter().zip(mgmt).enumerate();
    Ok(ClusterFile {
        name: before.map_or_else(String::new, |file| file.name.clone()),
        replicas,
        secret: match before {
            Some(file) => file.secret.clone(),
            None => secret()?,
        },
        nodes: nodes
            .map(|(at, (kv_port, mgmt_port))| ClusterFileNode {
                name: format!("n_{at}"),
                host: wanted.host.clone(),
                kv_port,
                mgmt_port,
                external: None,
            })
            .collect(),
    })
}

/// Returns a port for each node: from the given one on; any free ones for 0; those of the old file; or the default
/// ones.
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
        (Some(0), None) => return free_ports(count, taken),
        (Some(first), _) => first,
        (None, None) => default,
    };
    let port = |at: u16| first.checked_add(at.checked_mul(apart)?);
    let ports: Option<Vec<u16>> = (0..count).map(port).collect();
    ports.ok_or_else(|| RunError::Usage(format!("{count} nodes from port {first} on are too many")))
}

/// Finds ports that are free at this moment.
fn free_ports(count: u16, taken: &[u16]) -> Result<Vec<u16>, RunError> {
    let len = FREE_PORTS.end - FREE_PORTS.start;
    let start = u16::from_le_bytes(random::<2>()?) % len;
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
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

fn random<const N: usize>() -> Result<[u8; N], RunError> {
    let mut bytes = [0; N];
    let none = |error: getrandom::Error| RunError::Signals(io::Error::other(error));
    getrandom::fill(&mut bytes).map_err(none)?;
    Ok(bytes)
}

fn secret() -> Result<String, RunError> {
    let bytes = random::<24>()?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes the file so that nobody else can read it.
fn write(path: &Path, file: &ClusterFile) -> io::Result<()> {
    let text = toml::to_string(file).map_err(io::Error::other)?;
    let new = path.with_extension("toml.new");
    let mut out = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    out.write_all(b"# Made by kedge cluster-run; docs/guides/cluster.md says what stands here.\n")?;
    out.write_all(text.as_bytes())?;
    out.sync_all()?;
    std::fs::rename(&new, path)
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
            host: "127.0.0.1".to_owned(),
        }
    }

    fn kv(file: &ClusterFile) -> Vec<u16> {
        file.nodes.iter().map(|node| node.kv_port).collect()
    }

    #[test]
    fn cluster_file_of_a_directory_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("below").join("cluster.toml");
        let first = prepare(&path, &wanted(Some(3), None)).expect("made");
        assert_eq!(kv(&first), [12_000, 12_002, 12_004]);
        let mgmt: Vec<u16> = first.nodes.iter().map(|node| node.mgmt_port).collect();
        assert_eq!(mgmt, [9_000, 9_001, 9_002]);
        assert_eq!(first.replicas, 1);
        assert_eq!(prepare(&path, &wanted(None, None)).expect("read"), first);
        let moved = prepare(&path, &wanted(Some(3), Some(400))).expect("moved");
        assert_eq!(kv(&moved), [400, 402, 404]);
        assert_eq!(moved.secret, first.secret);
        // Any free ports: the old ones are as good.
        assert_eq!(
            kv(&prepare(&path, &wanted(None, Some(0))).expect("read")),
            [400, 402, 404]
        );
        let error = prepare(&path, &wanted(Some(2), None)).expect_err("another number");
        assert!(error.to_string().contains("has 3 nodes, not 2"), "{error}");
        let mode = std::fs::metadata(&path).expect("it is there");
        let mode = std::os::unix::fs::MetadataExt::mode(&mode);
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(&path, "nodes = 3").expect("written");
        prepare(&path, &wanted(None, None)).expect_err("no cluster file");
    }

    #[test]
    fn free_ports_are_distinct() {
        let file = plan(None, &wanted(Some(5), Some(0))).expect("planned");
        file.check().expect("no port twice");
        let beyond = plan(None, &wanted(Some(5), Some(65_530)));
        beyond.expect_err("there is no port 65538");
    }
}
