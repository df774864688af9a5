//! Tests of connections before the server is ready.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use kedge_disk::{DiskCall, DiskError, DiskObserver, ObservedDisk, Operation, SimDisk};
use kedge_protocol::binary::Opcode;
use kedge_types::Status;

use crate::client::{Client, Frame, SDK_FEATURES};
use crate::server::{Kedge, PASSWORD, Setup, USER};

/// A disk that delays the listing of logs until the test allows it.
#[derive(Debug, Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

impl DiskObserver for Gate {
    fn around<R>(
        &self,
        asked: &DiskCall<'_>,
        run: impl FnOnce() -> Result<R, DiskError>,
    ) -> Result<R, DiskError> {
        let is_log = asked.path.is_some_and(|path| path.ends_with("log"));
        if is_log && asked.operation == Operation::List {
            let is_open = self.is_open.lock().unwrap();
            drop(self.opened.wait_while(is_open, |is_open| !*is_open));
        }
        run()
    }
}

/// The memcached port took connections before the bucket was loaded, and answered `SERVER_ERROR temporary failure`,
/// which plain clients take for an error. SDKs retry, so the KV port still answers so.
#[test]
fn memcached_port_opens_when_the_bucket_is_loaded() {
    let disk = SimDisk::new(1);
    let on = |disk: Arc<dyn kedge_disk::Disk>| Setup {
        disk,
        ..Setup::default()
    };
    let kedge = Kedge::with(on(Arc::new(disk.clone())));
    kedge.client().set("key", b"value").ok();
    drop(kedge);

    let gate = Arc::new(ObservedDisk::new(Arc::new(disk), Arc::new(Gate::default())));
    let kedge = Kedge::begin(on(gate.clone()));
    let address = kedge.server().memcached_addr().unwrap();
    let mut plain = TcpStream::connect(address).unwrap();
    plain
        .write_all(b"get key\r\nset other 0 0 1\r\nx\r\n")
        .unwrap();
    let mut binary = Client::connect(address);
    let early_get = Frame::new(Opcode::Get, 7).key("key");
    binary.send(&early_get.bytes());
    let mut client = kedge.connect();
    client.hello(SDK_FEATURES);
    client.log_in(USER, PASSWORD);
    client.select("default");
    assert_eq!(client.get("key").status, Status::TemporaryFailure);
    plain.set_nonblocking(true).unwrap();
    let early = plain.read(&mut [0; 64]);
    assert!(
        early.is_err(),
        "{early:?} bytes before the bucket is loaded"
    );
    plain.set_nonblocking(false).unwrap();
    binary.stream.set_nonblocking(true).unwrap();
    let early = binary.stream.peek(&mut [0; 64]);
    assert!(
        early.is_err(),
        "{early:?} bytes before the bucket is loaded"
    );
    binary.stream.set_nonblocking(false).unwrap();

    gate.observer().open();
    // Generous: an answer comes at once.
    plain
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let expected = b"VALUE key 0 5\r\nvalue\r\nEND\r\nSTORED\r\n";
    let mut answers = vec![0; expected.len()];
    plain.read_exact(&mut answers).unwrap();
    assert_eq!(
        answers.escape_ascii().to_string(),
        expected.escape_ascii().to_string()
    );
    let answer = binary.reply().ok();
    assert_eq!((answer.opaque, &answer.value[..]), (7, &b"value"[..]));
}
