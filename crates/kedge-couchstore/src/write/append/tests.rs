use std::path::Path;

use kedge_disk::{Disk, SimDisk};

use super::*;
use crate::Options;
use crate::format::chunk::Codec;

fn appender() -> FileAppender {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/d")).expect("a directory");
    let path = Path::new("/d/file");
    let file = disk.create(path).expect("a file");
    let shared = OpenFile::new(file, path, Codec::Crc32c.into(), &Options::default());
    FileAppender::new(Arc::new(shared), 1)
}

/// The buffer is the largest part of a batch's memory in addition to the batch: growth by doubling would take twice as
/// much.
#[test]
fn append_buffer_is_sized_for_the_batch() {
    for (documents, body_bytes, most) in [
        (1, 100, 8 << 10),
        (20, 500, 20 << 10),
        (1_000, 500, BUFFER_BYTES_MIN + (5 << 10)),
        (1_000, 4_000, BUFFER_BYTES_MIN + (5 << 10)),
        (10_000, 777, 165 << 10),
        (70_000, 40, BUFFER_BYTES_MAX + (5 << 10)),
    ] {
        let mut out = appender();
        out.expect_documents(documents, documents * body_bytes);
        for _ in 0..documents {
            out.append(&vec![7; body_bytes]).expect("room");
        }
        // The longest possible header, preceded by the rest of a block.
        let header = vec![1; HEADER_BYTES_MAX as usize];
        out.append_header(|_, out| out.extend_from_slice(&header))
            .expect("room");
        let taken = out.buffer.capacity();
        assert!(taken <= most, "{taken} for {documents} of {body_bytes}");
        out.write_all().expect("room");
        out.shrink();
        let kept = out.buffer.capacity();
        assert!(kept <= BUFFER_BYTES_MIN + BEYOND_BYTES, "{kept}");
    }
}
