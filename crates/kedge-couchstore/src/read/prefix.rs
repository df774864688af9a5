//! The bytes of a file up to a header, for copies of the file.

use super::Snapshot;
use crate::Error;

impl Snapshot {
    /// Returns the number of bytes from the start of the file to the end of the snapshot's header. A file of just these
    /// bytes is in the state of the snapshot, with the same older headers.
    #[must_use]
    pub fn prefix_bytes(&self) -> u64 {
        let mut header = Vec::new();
        self.header.put(crate::format::block::HEADER, &mut header);
        self.header.offset.0 + header.len() as u64
    }

    /// Reads bytes of the file as they are, within [`Snapshot::prefix_bytes`], where they never change.
    ///
    /// # Errors
    /// Disk errors.
    pub fn read_prefix(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        Ok(self.shared.file().read_at(buf, offset)?)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use kedge_disk::{Disk, SimDisk};
    use kedge_types::{RevSeqno, Seqno};

    use crate::{ContentMeta, CreateOptions, Mutation, MutationBody, Options, Snapshot, Writer};

    fn save(writer: &mut Writer, key: &[u8], seqno: u64) {
        let mutation = Mutation {
            key,
            seqno: Seqno(seqno),
            rev: RevSeqno(1),
            deleted: false,
            content_meta: ContentMeta(0),
            rev_meta: b"meta",
            body: MutationBody::Stored(b"body"),
        };
        writer.save(&[mutation], &mut |_| {}).expect("saved");
    }

    #[test]
    fn prefix_up_to_a_header_is_the_file_at_that_header() {
        let disk: Arc<SimDisk> = SimDisk::new(1).into();
        let dir = Path::new("/data");
        disk.create_dir_all(dir).expect("a directory");
        let (path, copy) = (dir.join("1.couch.1"), dir.join("copy"));
        let options = Options::default();
        let created = CreateOptions::default();
        let mut writer = Writer::create(&*disk, &path, &created, &options).expect("created");
        let mut snapshots = Vec::new();
        for seqno in 1..6 {
            save(&mut writer, format!("k{seqno}").as_bytes(), seqno);
            writer.commit(seqno).expect("committed");
            snapshots.push(writer.snapshot());
        }
        for snapshot in snapshots {
            let mut bytes = vec![0; snapshot.prefix_bytes() as usize];
            snapshot.read_prefix(&mut bytes, 0).expect("read");
            disk.create(&copy)
                .and_then(|file| file.write_at(&bytes, 0))
                .expect("written");
            let found = Snapshot::open(&*disk, &copy, &options).expect("a file");
            assert_eq!(found.header(), snapshot.header());
            assert_eq!(found.prefix_bytes(), bytes.len() as u64);
            assert_eq!(found.history().count(), snapshot.history().count());
            disk.remove(&copy).expect("removed");
        }
    }
}
