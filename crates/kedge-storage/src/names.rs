//! Names of files (couchstore file format, section 3.5), and what a crash may have left under them.
//!
//! ```text
//! 17.couch.3                      the file of vBucket 17, in its third revision
//! 17.couch.boot                   a file that is being made
//! 17.couch.3.compact              the copy of a compaction, and beside it 17.couch.3.compact.btree-tmp_N
//! 17.couch.3.damaged              a file that could not be read and was given up; of several .damaged.2 and so on
//! ```

use std::path::Path;

use kedge_couchstore::compact::remove_leftovers;
use kedge_disk::Disk;
use kedge_types::VbId;

use crate::StorageError;

const INFIX: &str = ".couch.";
const BOOT: &str = "boot";
const DAMAGED: &str = "damaged";

/// Which of a vBucket's files, one after the other, it is: the first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(
    /// The number in the file's name.
    pub u64,
);

impl Revision {
    pub(crate) fn next(self) -> Self {
        Revision(self.0 + 1)
    }
}

/// The name of a vBucket's file.
pub(crate) fn file_name(vb: VbId, revision: Revision) -> String {
    format!("{vb}{INFIX}{}", revision.0)
}

/// The name of a vBucket's file while it is being made.
pub(crate) fn boot_name(vb: VbId) -> String {
    format!("{vb}{INFIX}{BOOT}")
}

/// The `n`th name, from 1 on, that a file of this name may be put away under.
pub(crate) fn damaged_name(name: &str, n: u32) -> String {
    match n {
        1 => format!("{name}.{DAMAGED}"),
        _ => format!("{name}.{DAMAGED}.{n}"),
    }
}

/// Of which vBucket's file a name is that was put away.
pub(crate) fn damaged_of(name: &str) -> Option<VbId> {
    let (vb, rest) = parse(name)?;
    let (revision, rest) = rest.split_once('.')?;
    revision.parse::<u64>().ok()?;
    let n = rest.strip_prefix(DAMAGED)?;
    let is_one = n.is_empty() || n.strip_prefix('.')?.parse::<u32>().is_ok();
    is_one.then_some(vb)
}

/// What a name says. Only names in the form that they are given have a meaning, so that no file has two.
fn parse(name: &str) -> Option<(VbId, &str)> {
    let (vb, rest) = name.split_once(INFIX)?;
    let number = vb.parse().ok()?;
    (VbId(number).to_string() == vb).then_some((VbId(number), rest))
}

/// Which file a name is that of; `None` if it is that of none that is complete.
pub(crate) fn revision_of(name: &str) -> Option<(VbId, Revision)> {
    let (vb, rest) = parse(name)?;
    let revision = rest.parse().ok().map(Revision)?;
    let is_one = revision.0 > 0 && file_name(vb, revision) == name;
    is_one.then_some((vb, revision))
}

/// The newest revision of each vBucket's file; 0 where there is none. Older ones go, and so does what is not complete.
/// Files of vBuckets that there are none of are left alone.
pub(crate) fn take_stock(
    disk: &dyn Disk,
    dir: &Path,
    vbuckets: u16,
) -> Result<Vec<Revision>, StorageError> {
    remove_leftovers(disk, dir)?;
    let mut newest = vec![Revision::default(); usize::from(vbuckets)];
    let mut needless = Vec::new();
    for name in disk.list(dir)? {
        let Some((vb, rest)) = parse(&name) else {
            continue;
        };
        let Some(known) = newest.get_mut(usize::from(vb.get())) else {
            continue;
        };
        if rest == BOOT {
            needless.push(name);
            continue;
        }
        let Some((_, revision)) = revision_of(&name) else {
            continue;
        };
        let older = revision.min(*known);
        *known = revision.max(*known);
        if older.0 > 0 {
            needless.push(file_name(vb, older));
        }
    }
    for name in &needless {
        disk.remove(&dir.join(name))?;
    }
    // Names that an earlier process made may be in the kernel's memory only, and what is written from now on under them
    // has to be found.
    disk.sync_dir(dir)?;
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_disk::SimDisk;

    #[test]
    fn what_was_put_away_is_nobodys_file() {
        for n in [1, 2, 17] {
            let name = damaged_name("3.couch.4", n);
            assert_eq!(damaged_of(&name), Some(VbId(3)), "{name}");
            assert_eq!(revision_of(&name), None, "{name}");
        }
        for other in [
            "3.couch.4",
            "3.couch.4.compact",
            "3.couch.x.damaged",
            "3.couch.4.damaged.x",
        ] {
            assert_eq!(damaged_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_newest_revision_counts_and_what_is_incomplete_goes() {
        let (disk, dir) = (SimDisk::new(1), Path::new("/data"));
        disk.create_dir_all(dir).expect("a directory");
        let (kept, gone) = (
            [
                "0.couch.2",
                "1.couch.10",
                "3.couch.1",
                "4.couch.1",
                "02.couch.3",
                "2.couch.04",
                "2.couch.0",
                "2.couch.+7",
                "2.couch.x",
                "bucket.json",
                "master.couch.1",
                "couch.1",
                "3.couch.2.damaged",
            ],
            [
                "0.couch.1",
                "1.couch.9",
                "1.couch.8",
                "2.couch.boot",
                "0.couch.2.compact",
                "0.couch.2.compact.btree-tmp_3",
            ],
        );
        for name in kept.iter().chain(&gone) {
            disk.create(&dir.join(name)).expect("a file");
        }
        let newest = take_stock(&disk, dir, 4).expect("a directory");
        assert_eq!(newest, [2, 10, 0, 1].map(Revision));
        let mut left = kept.map(str::to_owned);
        left.sort();
        assert_eq!(disk.list(dir).expect("a directory"), left);
        disk.crash(7);
        assert_eq!(take_stock(&disk, dir, 4).expect("a directory"), newest);
    }
}
