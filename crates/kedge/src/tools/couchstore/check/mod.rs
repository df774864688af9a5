//! `kedge check`: whether couchstore files are whole, and say the same wherever they say something twice.

mod file;
mod names;
mod report;

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kedge_couchstore::OnDamage;

use self::report::{FileReport, Totals};
use super::{FileError, Keys};
use crate::output;

/// Check couchstore files: every node, both trees against each other, every body, all metadata
///
/// Exit codes: 0 all is well, 1 damage was found, 2 something cannot be read.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    /// A file such as data/0.couch.1, or a directory of such
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Check older commits, too, as far back as the file has them
    #[arg(long)]
    every_header: bool,
    /// Print JSON lines, one for each file and one for all, instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: Keys,
}

/// Checks all that is asked for. Returns the exit code.
///
/// # Errors
/// [`FileError`] when nothing can be checked at all.
pub(crate) fn run(args: &CheckArgs) -> Result<u8, FileError> {
    let files = names::files(&args.paths)?;
    let strict = args.keys.options(OnDamage::Refuse)?;
    let mut shown = Shown::new(!args.json && io::stderr().is_terminal());
    let mut totals = Totals::default();
    for (number, named) in files.iter().enumerate() {
        shown.next_file(number + 1, files.len());
        let mut report = FileReport::new(named);
        file::check(&mut report, &strict, args.every_header, &mut shown);
        shown.hide();
        totals.add(&report);
        output::print(&if args.json {
            report.json()
        } else {
            report.text()
        })?;
    }
    if args.json {
        output::print(&totals.json())?;
    } else if files.len() > 1 {
        output::print(&totals.text())?;
    }
    Ok(totals.exit_code())
}

/// How far the check of a file is, on a terminal.
struct Shown {
    is_on: bool,
    prefix: String,
    bar: Option<ProgressBar>,
}

impl Shown {
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

    /// So many more entries are to be gone through.
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

    /// Makes room for lines of text.
    fn hide(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
