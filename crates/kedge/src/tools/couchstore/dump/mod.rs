//! `kedge dump`: the content of a couchstore file as JSON, one object a line. Nothing is kept, so memory does not grow
//! with the file.

mod document;
mod local;
mod select;
mod tree;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use kedge_couchstore::{
    BodyForm, DamageKind, Document, Entry, Error, Offset, OnDamage, Snapshot, TreeKind,
};
use serde::Serialize;

use self::document::DocumentLine;
use self::select::Selection;
use super::header::HeaderLine;
use super::{EncryptionKeyArgs, FileError, text};

/// The number of bytes that are collected before they are written.
const OUTPUT_BYTES: usize = 64 << 10;

/// Print the content of a couchstore file as JSON lines
///
/// Without flags: all documents and tombstones, in seqno order, as of the newest commit. Exit codes: 0 success, 1 the
/// file is damaged, 2 it cannot be read.
#[derive(Args, Clone, Debug)]
pub(crate) struct DumpArgs {
    /// The file, such as data/0.couch.1
    file: PathBuf,
    #[command(flatten)]
    what: DumpContent,
    #[command(flatten)]
    selection: select::SelectArgs,
    /// Use the commit whose header is at this offset, instead of the newest
    #[arg(long, value_name = "OFFSET", value_parser = text::number)]
    header: Option<u64>,
    /// Use the commit this many before the newest
    #[arg(long, value_name = "N", conflicts_with = "header")]
    older: Option<u32>,
    /// Leave out the bodies
    #[arg(long)]
    no_body: bool,
    /// Handling of damage
    #[arg(long, value_enum, default_value_t = DamageMode::Strict)]
    mode: DamageMode,
    #[command(flatten)]
    keys: EncryptionKeyArgs,
}

#[derive(Args, Clone, Debug)]
#[group(multiple = false)]
struct DumpContent {
    /// Documents in key order
    #[arg(long)]
    by_id: bool,
    /// Local documents
    #[arg(long)]
    local: bool,
    /// Headers, newest first
    #[arg(long)]
    headers: bool,
    /// The nodes of a tree
    #[arg(long, value_enum, value_name = "TREE")]
    tree: Option<TreeName>,
    /// The document with this key, and its prepare
    #[arg(long)]
    key: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TreeName {
    /// The tree by document key
    Id,
    /// The tree by seqno
    Seq,
    /// The tree of local documents
    Local,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DamageMode {
    /// Refuse a file whose newest header is damaged, and stop at the first damage
    #[value(alias = "normal")]
    Strict,
    /// Use the newest undamaged header, and skip damage
    Recover,
}

impl TreeName {
    const fn kind(self) -> TreeKind {
        match self {
            Self::Id => TreeKind::ById,
            Self::Seq => TreeKind::BySeqno,
            Self::Local => TreeKind::Local,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Seq => "seq",
            Self::Local => "local",
        }
    }
}

/// Prints the requested content.
///
/// # Errors
/// [`FileError`]; the output before it is right.
pub(crate) fn run(args: &DumpArgs) -> Result<(), FileError> {
    let selection = Selection::new(&args.selection, args.what.by_id)?;
    let on_damage = match args.mode {
        DamageMode::Strict => OnDamage::Refuse,
        DamageMode::Recover => OnDamage::Recover,
    };
    let newest = args.keys.file_keys()?.open(&args.file, on_damage)?;
    let snapshot = chosen(args, &newest)?;
    let mut dump = Dump {
        args,
        out: BufWriter::with_capacity(OUTPUT_BYTES, io::stdout().lock()),
        damaged: 0,
    };
    let printed = dump.print(&snapshot, &selection);
    let flushed = dump.out.flush().map_err(FileError::from);
    match printed.and(flushed) {
        // The reader has closed the output.
        Err(FileError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Ok(()) if dump.damaged > 0 => Err(FileError::Damaged {
            file: args.file.clone(),
            places: dump.damaged,
        }),
        other => other,
    }
}

/// Returns the commit that the flags select.
fn chosen(args: &DumpArgs, newest: &Snapshot) -> Result<Snapshot, FileError> {
    if let Some(offset) = args.header {
        return match newest.at(Offset(offset)) {
            Err(Error::Corrupt {
                problem: DamageKind::NotAHeader,
                ..
            }) => Err(FileError::Usage(format!(
                "{} has no header at byte {offset}",
                args.file.display()
            ))),
            found => Ok(found?),
        };
    }
    let older = args.older.unwrap_or(0) as usize;
    match newest.history().nth(older) {
        Some(snapshot) => Ok(snapshot?),
        None => Err(FileError::Usage(format!(
            "{} has {} commits, there is none {older} before the newest",
            args.file.display(),
            newest.history().count()
        ))),
    }
}

struct Dump<'a, W: Write> {
    args: &'a DumpArgs,
    out: W,
    /// The number of skipped damaged places.
    damaged: u64,
}

impl<W: Write> Dump<'_, W> {
    fn print(&mut self, snapshot: &Snapshot, selection: &Selection) -> Result<(), FileError> {
        let what = &self.args.what;
        let recover = self.args.mode == DamageMode::Recover;
        if what.headers {
            return self.each(snapshot.history(), |dump, found| {
                dump.line(&HeaderLine::new(&found))
            });
        }
        if what.local {
            let high_seqno = snapshot.header().update_seqno();
            return self.each(snapshot.locals()?, |dump, (name, value)| {
                dump.line(&local::LocalLine::new(&name, &value, high_seqno))
            });
        }
        if let Some(name) = what.tree {
            return self.each(snapshot.nodes_of(name.kind()), |dump, node| {
                dump.line(&tree::NodeLine::new(name.text(), &node))
            });
        }
        if let Some(key) = &what.key {
            return self.one_key(snapshot, &selection.forms_of(key)?);
        }
        if what.by_id {
            let scan = snapshot.scan_ids(selection.keys())?;
            let scan = if recover { scan.past_damage() } else { scan };
            return if self.args.no_body {
                self.entries(scan, selection)
            } else {
                self.documents(scan.with_bodies(BodyForm::Plain), selection)
            };
        }
        let scan = snapshot.scan_seqnos(selection.seqnos())?;
        let scan = if recover { scan.past_damage() } else { scan };
        if self.args.no_body {
            self.entries(scan, selection)
        } else {
            self.documents(scan.with_bodies(BodyForm::Plain), selection)
        }
    }

    fn one_key(&mut self, snapshot: &Snapshot, forms: &[Vec<u8>]) -> Result<(), FileError> {
        let mut found = false;
        for entry in snapshot.get_many(forms)?.into_iter().flatten() {
            found = true;
            if self.args.no_body {
                self.line(&DocumentLine::new(&entry))?;
            } else {
                let body = snapshot.body(&entry, BodyForm::Plain)?;
                self.line(&DocumentLine::with_body(&entry, body.as_deref()))?;
            }
        }
        if !found {
            eprintln!("kedge dump: no document has this key");
        }
        Ok(())
    }

    fn entries(
        &mut self,
        scan: impl Iterator<Item = Result<Entry, Error>>,
        selection: &Selection,
    ) -> Result<(), FileError> {
        self.each(scan, |dump, entry| {
            if selection.takes(&entry) {
                dump.line(&DocumentLine::new(&entry))?;
            }
            Ok(())
        })
    }

    fn documents(
        &mut self,
        scan: impl Iterator<Item = Result<Document, Error>>,
        selection: &Selection,
    ) -> Result<(), FileError> {
        self.each(scan, |dump, Document { entry, body }| {
            if selection.takes(&entry) {
                dump.line(&DocumentLine::with_body(&entry, body.as_deref()))?;
            }
            Ok(())
        })
    }

    /// Calls `print` for each item. Damage ends the output, or is reported and skipped, depending on the flags.
    fn each<T>(
        &mut self,
        items: impl Iterator<Item = Result<T, Error>>,
        mut print: impl FnMut(&mut Self, T) -> Result<(), FileError>,
    ) -> Result<(), FileError> {
        for item in items {
            match item {
                Ok(item) => print(self, item)?,
                Err(error) if self.args.mode == DamageMode::Recover => {
                    self.damaged += 1;
                    eprintln!("kedge dump: {error}");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &impl Serialize) -> Result<(), FileError> {
        serde_json::to_writer(&mut self.out, line).map_err(io::Error::from)?;
        Ok(self.out.write_all(b"\n")?)
    }
}
