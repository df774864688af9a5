//! `kedge import`: creates a bucket from the files of another server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use kedge_bucket::{BucketConfig, ImportReport, VbState};
use kedge_disk::{Disk, DiskError, PosixDisk};
use kedge_node::registry::{self, RegistryError};

use super::table::table;
use crate::output;

/// Create a bucket from the vBucket files of another server
///
/// DIR is a bucket's directory of a Couchbase server, with files such as 17.couch.3; it is only read. The server that
/// has the data directory must be stopped. Every file is checked and copied, and a key that belongs to another vBucket
/// is refused; documents, tombstones, revisions and the history of each vBucket are unchanged.
#[derive(Args, Clone, Debug)]
pub(crate) struct ImportArgs {
    /// Directory with the files
    dir: PathBuf,
    /// Name of the new bucket
    #[arg(long, default_value = "default")]
    bucket: String,
    /// Data directory, as for serve
    #[arg(long, env = "KEDGE_DATA_DIR", default_value = "./data")]
    data_dir: PathBuf,
    /// vBuckets of the bucket, as many as it had in the other server; by default derived from the keys of the files
    #[arg(long, env = "KEDGE_VBUCKETS")]
    vbuckets: Option<u16>,
    /// Memory for its documents, in MiB
    #[arg(long, default_value_t = 100, value_name = "MIB")]
    quota: u64,
    /// Print one row for each vBucket
    #[arg(long)]
    list: bool,
}

/// The reason why nothing, or not everything, was imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ImportError {
    #[error("the data directory {} is in use by another process; stop that one first", .0.display())]
    InUse(PathBuf),
    #[error("cannot use the data directory {}: {source}", path.display())]
    DataDir { path: PathBuf, source: DiskError },
    #[error("there is a bucket \"{0}\" already; give another name with --bucket")]
    Exists(String),
    #[error("{0}")]
    Registry(#[source] RegistryError),
    #[error("standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl From<RegistryError> for ImportError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Exists(name) => Self::Exists(name),
            other => Self::Registry(other),
        }
    }
}

pub(crate) fn run(args: &ImportArgs) -> Result<(), ImportError> {
    let disk: Arc<dyn Disk> = Arc::new(PosixDisk);
    let _lock = lock(&*disk, &args.data_dir)?;
    let vbuckets = match args.vbuckets {
        Some(vbuckets) => vbuckets,
        None => registry::vbuckets_of_files(&*disk, &args.dir)?,
    };
    let config = BucketConfig::new(&args.bucket, vbuckets, args.quota << 20);
    let import = registry::import(&disk, &args.data_dir, &config, &args.dir)?;
    Ok(output::print(&describe(&config, &import, args.list))?)
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<kedge_disk::DirLock, ImportError> {
    let unusable = |source: DiskError| match source.is_locked() {
        true => ImportError::InUse(path.to_owned()),
        false => ImportError::DataDir {
            path: path.to_owned(),
            source,
        },
    };
    disk.create_dir_all(path).map_err(unusable)?;
    disk.lock_dir(path).map_err(unusable)
}

const fn state_name(state: VbState) -> &'static str {
    match state {
        VbState::Active => "active",
        VbState::Replica => "replica",
        VbState::Pending => "pending",
        VbState::Dead => "dead",
    }
}

fn describe(config: &BucketConfig, import: &ImportReport, list: bool) -> String {
    let (bucket, vbuckets) = (&config.name, config.vbuckets);
    let mut text = String::new();
    if list {
        let header = ["VBUCKET", "DOCUMENTS", "HIGH SEQNO", "WAS", "FILE"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for file in &import.files {
            rows.push(vec![
                file.vb.to_string(),
                file.documents.to_string(),
                file.high_seqno.get().to_string(),
                state_name(file.was).to_owned(),
                file.file.display().to_string(),
            ]);
        }
        text = table("rrrll", &rows);
    }
    for name in &import.ignored {
        text.push_str(&format!("not taken over: {name}\n"));
    }
    for file in import.files.iter().filter(|file| file.lacked_max_cas) {
        text.push_str(&format!(
            "note: {} was written by an old release and has no highest CAS: that of its documents is used\n",
            file.file.display()
        ));
    }
    let documents: u64 = import.files.iter().map(|file| file.documents).sum();
    let files = import.files.len();
    let before = import.files.iter().filter(|file| file.was_there).count();
    text.push_str(&format!(
        "bucket \"{bucket}\" is made: {documents} documents in {files} of {vbuckets} vBuckets"
    ));
    if before > 0 {
        text.push_str(&format!(", {before} of them from an import before"));
    }
    text.push('\n');
    text
}
