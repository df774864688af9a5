//! `kedge audit`: the audit log of a data directory as text.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, Subcommand};
use kedge_encryption::{DataKey, KEYRING_FILE, KeySet};
use kedge_node::audit::{AuditReadError, audit_files, print_audit_file};

use super::ToolError;
use super::couchstore::keyrings;
use super::master_key::MasterKeyArgs;

/// Print the audit log of a data directory
#[derive(Args, Clone, Debug)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum AuditCommand {
    /// Print the lines of the audit log, the oldest first, decrypted if they are encrypted
    ///
    /// The files are only read, and the server may run.
    Show(ShowArgs),
}

#[derive(Args, Clone, Debug)]
struct ShowArgs {
    /// Files to print, in this order, instead of all of the data directory
    files: Vec<PathBuf>,
    /// Data directory, as for serve
    #[arg(long, env = "KEDGE_DATA_DIR", default_value = "./data")]
    data_dir: PathBuf,
    /// Keyring of files that are not in their data directory, which has it as encryption.keys
    #[arg(long = "encryption-keyring", value_name = "FILE")]
    keyring: Option<PathBuf>,
    #[command(flatten)]
    master: MasterKeyArgs,
}

pub(crate) fn run(args: &AuditArgs) -> Result<(), ToolError> {
    let AuditCommand::Show(args) = &args.command;
    let mut files = args.files.clone();
    if files.is_empty() {
        let dir = &args.data_dir;
        let found = audit_files(dir);
        files = found.map_err(|error| failure(dir, &error))?;
    }
    if files.is_empty() {
        let dir = args.data_dir.display();
        return Err(ToolError::Usage(format!(
            "{dir} has no audit log: --data-dir names the data directory, and the setting audit_log records events"
        )));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let mut keys = AuditKeyring::new(args);
    let printed = files
        .iter()
        .try_for_each(|path| print(path, &mut keys, &mut out));
    let flushed = out.flush().map_err(ToolError::from);
    match printed.and(flushed) {
        // The reader has closed the output.
        Err(ToolError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

fn print(
    path: &Path,
    keys: &mut AuditKeyring<'_>,
    out: &mut impl io::Write,
) -> Result<(), ToolError> {
    let file = File::open(path).map_err(|error| failure(path, &error))?;
    keys.of(path);
    let mut find = |id: &str| keys.find(id);
    match print_audit_file(BufReader::new(file), &mut find, out) {
        Ok(()) => Ok(()),
        Err(AuditReadError::Write(error)) => Err(error.into()),
        Err(error @ AuditReadError::KeyNeeded(_)) => Err(ToolError::Usage(format!(
            "{}: {error}; {}",
            path.display(),
            keys.missing
        ))),
        Err(error) => Err(failure(path, &error)),
    }
}

fn failure(path: &Path, why: &dyn std::fmt::Display) -> ToolError {
    ToolError::Usage(format!("{}: {why}", path.display()))
}

/// The data keys of the files, which are read when the first file needs one.
struct AuditKeyring<'a> {
    args: &'a ShowArgs,
    path: PathBuf,
    loaded: Option<(PathBuf, KeySet)>,
    /// The reason why the last wanted key was not found.
    missing: String,
}

impl<'a> AuditKeyring<'a> {
    fn new(args: &'a ShowArgs) -> Self {
        Self {
            args,
            path: PathBuf::new(),
            loaded: None,
            missing: String::new(),
        }
    }

    /// Selects the keyring of a file.
    fn of(&mut self, file: &Path) {
        let beside = || file.with_file_name(KEYRING_FILE);
        self.path = self.args.keyring.clone().unwrap_or_else(beside);
    }

    fn find(&mut self, id: &str) -> Option<Arc<DataKey>> {
        if self
            .loaded
            .as_ref()
            .is_none_or(|(path, _)| *path != self.path)
        {
            match self.load() {
                Ok(keys) => self.loaded = Some((self.path.clone(), keys)),
                Err(why) => {
                    self.missing = why;
                    return None;
                }
            }
        }
        let (path, keys) = self.loaded.as_ref()?;
        let found = keys.find(id).cloned();
        if found.is_none() {
            self.missing = format!(
                "{} does not have it: give the keyring of the node, from a backup, with --encryption-keyring",
                path.display()
            );
        }
        found
    }

    fn load(&self) -> Result<KeySet, String> {
        let keyring = self.path.display();
        let read = keyrings::read(&self.path).map_err(|error| error.to_string())?;
        let read = read.ok_or_else(|| {
            format!(
                "there is no keyring {keyring}: give that of the node with --encryption-keyring"
            )
        })?;
        let masters = self.args.master.load().map_err(|error| error.to_string())?;
        let masters = masters.ok_or_else(|| {
            format!(
                "give the master key {}, which wraps {keyring}, with --encryption-master-key",
                read.master_name()
            )
        })?;
        read.unlock(&masters).map_err(|error| error.to_string())
    }
}
