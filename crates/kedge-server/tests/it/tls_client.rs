//! Clients over TLS. Each is one of the usual clients: two threads carry the bytes of its connection over TLS.
//!
//! With `KEDGE_TEST_TLS=1`, all servers of these tests have TLS ports, and all clients of the KV port use them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::SystemTime;

use kedge_tls::rustls::pki_types::ServerName;
use kedge_tls::rustls::{ClientConfig, ClientConnection};
use kedge_tls::{
    ClientAuth, ClientCerts, ClientTls, Issued, Request, ServerTls, TlsOptions, Trust, Usage,
    issue, new_authority,
};

/// The CA of the server's and the clients' certificates.
static CA: LazyLock<Issued> =
    LazyLock::new(|| new_authority("Test CA", 30, SystemTime::now()).unwrap());

/// Returns true if all servers and clients are to use TLS.
pub(crate) fn is_default() -> bool {
    std::env::var("KEDGE_TEST_TLS").is_ok_and(|text| text == "1")
}

/// A certificate of the CA, and its key, in files.
fn issued(dir: &Path, usage: Usage, name: &str) -> (PathBuf, PathBuf) {
    let request = Request {
        usage,
        common_name: name.to_owned(),
        names: vec!["127.0.0.1".to_owned()],
        days: 10,
    };
    let signer = (&CA.certificate[..], &CA.key[..]);
    let issued = issue(signer, &request, SystemTime::now()).unwrap();
    issued.write(dir, "own").unwrap()
}

/// TLS of a server, with such client certificates.
pub(crate) fn server(client_certs: ClientCerts) -> ServerTls {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = issued(dir.path(), Usage::Node, "db1");
    let (ca, _) = CA.write(dir.path(), "ca").unwrap();
    let options = TlsOptions {
        certificate,
        key,
        client_auth: ClientAuth {
            mode: client_certs,
            ca: vec![ca],
            ..ClientAuth::default()
        },
        ..TlsOptions::default()
    };
    ServerTls::open(options, SystemTime::now()).unwrap()
}

/// TLS of a client, with a certificate for a user if there is one.
pub(crate) fn client_config(user: Option<&str>) -> Arc<ClientConfig> {
    let dir = tempfile::tempdir().unwrap();
    let (ca, _) = CA.write(dir.path(), "ca").unwrap();
    let own = user.map(|user| issued(dir.path(), Usage::Client, user));
    let trust = Trust::Ca(vec![ca]);
    ClientTls { trust, own }.config().unwrap()
}

/// A connection to a TLS port. Its bytes are those inside of TLS.
pub(crate) fn connect(address: SocketAddr, user: Option<&str>) -> TcpStream {
    static ANONYMOUS: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| client_config(None));
    let config = match user {
        None => ANONYMOUS.clone(),
        Some(_) => client_config(user),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let outer = TcpStream::connect(address).unwrap();
    outer.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    std::thread::spawn(move || carry(far, outer, config));
    near
}

/// Carries bytes in both directions until one side ends. What the other side still sends is carried, too.
#[expect(clippy::needless_pass_by_value, reason = "the thread owns the streams")]
fn carry(inner: TcpStream, mut outer: TcpStream, config: Arc<ClientConfig>) {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut connection = ClientConnection::new(config, name).unwrap();
    while connection.is_handshaking() {
        if connection.complete_io(&mut outer).is_err() {
            return;
        }
    }
    let connection = Mutex::new(connection);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            to_client(&connection, &outer, &inner);
            let _ = inner.shutdown(Shutdown::Write);
        });
        to_server(&connection, &inner, &outer);
        let _ = outer.shutdown(Shutdown::Write);
    });
}

fn to_server(connection: &Mutex<ClientConnection>, mut inner: &TcpStream, mut outer: &TcpStream) {
    let mut buffer = [0; 16 << 10];
    loop {
        let count = match inner.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap_or(0),
        };
        let mut records = Vec::new();
        {
            let mut connection = connection.lock().unwrap();
            match count {
                0 => connection.send_close_notify(),
                _ => connection.writer().write_all(&buffer[..count]).unwrap(),
            }
            while connection.wants_write() {
                connection.write_tls(&mut records).unwrap();
            }
        }
        if outer.write_all(&records).is_err() || count == 0 {
            return;
        }
    }
}

fn to_client(connection: &Mutex<ClientConnection>, mut outer: &TcpStream, mut inner: &TcpStream) {
    let mut buffer = [0; 16 << 10];
    let (mut at, mut len) = (0, 0);
    loop {
        let mut records = &buffer[at..len];
        // What came with the end of the handshake is there before the first read.
        let (plain, is_over) = received(&mut connection.lock().unwrap(), &mut records);
        at = len - records.len();
        if inner.write_all(&plain).is_err() || is_over {
            return;
        }
        if at < len {
            continue;
        }
        let count = match outer.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap_or(0),
        };
        if count == 0 {
            return;
        }
        (at, len) = (0, count);
    }
}

/// Takes some of these records. Returns their content, and true at the end of the session.
fn received(connection: &mut ClientConnection, records: &mut &[u8]) -> (Vec<u8>, bool) {
    let is_read = records.is_empty() || connection.read_tls(records).is_ok();
    let Ok(state) = connection.process_new_packets() else {
        return (Vec::new(), true);
    };
    let mut plain = vec![0; state.plaintext_bytes_to_read()];
    let is_over = connection.reader().read_exact(&mut plain).is_err() || state.peer_has_closed();
    (plain, is_over || !is_read)
}
