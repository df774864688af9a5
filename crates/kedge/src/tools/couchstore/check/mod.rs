//! `kedge check`: checks that couchstore files are whole and consistent, and that the files exist that the catalogs of
//! a bucket's directory list.
//!
//! Invariant: nothing is written, and no write permission is needed.

mod file;
mod keyring;
mod listed;
mod names;
mod report;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use self::listed::CatalogFindings;
use self::names::{CheckedDirectory, NamedFile, PathArgument};
use self::report::{CheckTotals, FileReport};
use super::keyrings::FileKeys;
use super::{EncryptionKeyArgs, FileError};
use crate::output;

/// Check couchstore files: every node, both trees against each other, every body, all metadata
///
/// For a bucket's directory it also reports files that the directory's catalogs list, and that are missing or
/// truncated. Files of an encrypted bucket need the master key of the server, which opens the keyring of their directory.
///
/// Exit codes: 0 no damage, 1 damage was found, 2 something cannot be read.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    /// A file such as data/0.couch.1, a directory of files, or a data directory for all its buckets
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Check older commits, too, as far back as the file has them
    #[arg(long)]
    every_header: bool,
    /// Print JSON lines, one for each file and one for all, instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: EncryptionKeyArgs,
}

/// Checks all arguments. Returns the exit code.
///
/// # Errors
/// [`FileError`] when nothing can be checked.
pub(crate) fn run(args: &CheckArgs) -> Result<u8, FileError> {
    let mut keys = args.keys.file_keys()?;
    let work = work(&args.paths, &mut keys)?;
    let count = work.len();
    let mut shown = CheckProgress::new(!args.json && io::stderr().is_terminal());
    let mut totals = CheckTotals::default();
    for (work, number) in work.into_iter().zip(1..) {
        let report = match work {
            CheckTask::Done(report) => *report,
            CheckTask::File(named) => {
                shown.next_file(number, count);
                let mut report = FileReport::new(&named);
                file::check(&mut report, &mut keys, args.every_header, &mut shown);
                shown.hide();
                report
            }
        };
        totals.add(&report);
        output::print(&if args.json {
            report.json()
        } else {
            report.text()
        })?;
    }
    if args.json {
        output::print(&totals.json())?;
    } else if count > 1 {
        output::print(&totals.text())?;
    }
    Ok(totals.exit_code())
}

/// One line of the output.
enum CheckTask {
    /// The report of a keyring, of a catalog, or of a missing file that it lists.
    Done(Box<FileReport>),
    /// A couchstore file to check.
    File(NamedFile),
}

/// Reads the catalogs, keyrings and names of all arguments.
fn work(paths: &[PathBuf], keys: &mut FileKeys) -> Result<Vec<CheckTask>, FileError> {
    let mut work = Vec::new();
    for path in paths {
        let before = work.len();
        for given in names::given(path)? {
            match given {
                PathArgument::File(named) => work.push(CheckTask::File(named)),
                PathArgument::Directory(directory) => work.extend(of_directory(&directory, keys)?),
            }
        }
        if work.len() == before {
            return Err(names::nothing_in(path));
        }
    }
    Ok(work)
}

fn of_directory(
    directory: &CheckedDirectory,
    keys: &mut FileKeys,
) -> Result<Vec<CheckTask>, FileError> {
    let dir = &directory.path;
    let mut listed = CatalogFindings::read(dir)?;
    listed.reports.extend(keyring::check(dir, keys));
    let mut files = names::in_directory(dir)?;
    if files.is_empty() && listed.reports.is_empty() && !directory.may_be_empty {
        return Err(names::nothing_in(dir));
    }
    for named in &mut files {
        listed.mark(named);
    }
    let done = listed
        .reports
        .into_iter()
        .map(Box::new)
        .map(CheckTask::Done);
    Ok(done.chain(files.into_iter().map(CheckTask::File)).collect())
}

/// The progress display of the check of a file, on a terminal.
struct CheckProgress {
    is_on: bool,
    prefix: String,
    bar: Option<ProgressBar>,
}

impl CheckProgress {
    fn new(is_on: bool) -> Self {
        Self {
            is_on,
            prefix: String::new(),
            bar: None,
        }
    }

    fn next_file(&mut self, number: usize, files: usize) {
        self.prefix = format!("checking {number}/{files}");
    }

    /// Adds to the number of entries to check.
    fn expect(&mut self, entries: u64) {
        if let Some(bar) = &self.bar {
            bar.inc_length(entries);
        } else if self.is_on {
            let template = "{prefix} [{bar:30}] {percent:>3} % {elapsed} {human_pos}/{human_len}";
            let style = ProgressStyle::with_template(template);
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(entries)
                .with_style(style.progress_chars("#>-"))
                .with_prefix(self.prefix.clone());
            self.bar = Some(bar);
        }
    }

    fn advance(&self, entries: u64) {
        if let Some(bar) = &self.bar {
            bar.inc(entries);
        }
    }

    /// Clears the display for lines of text.
    fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
