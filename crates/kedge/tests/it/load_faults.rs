//! `kedge load` against servers that misbehave: it says what happened, and it ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use kedge_protocol::binary::{HEADER_BYTES, Response};
use kedge_types::Status;

use crate::process::{kedge, run};

/// Longest time a run of these may take: its own timeouts are a second or two.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Serves every connection with `serve` until the test ends.
fn server(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            thread::spawn(move || serve(stream));
        }
    });
    format!("memcached://{address}")
}

/// Runs the generator; exit code and report.
fn load(url: &str, flags: &[&str]) -> (Option<i32>, serde_json::Value) {
    let began = Instant::now();
    let mut command = kedge(&[
        "load",
        "-U",
        url,
        "--json",
        "--no-population",
        "--set-pct=0",
    ]);
    let (code, stdout, stderr) = run(command.args(flags));
    assert!(began.elapsed() < RUN_MAX, "{stdout}{stderr}");
    let report = serde_json::from_str(&stdout);
    (
        code,
        report.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")),
    )
}

/// Answers `count` GETs with a miss.
fn answer(stream: &mut TcpStream, count: usize) -> std::io::Result<()> {
    for _ in 0..count {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header)?;
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        let mut sink = vec![0; body as usize];
        stream.read_exact(&mut sink)?;
        let opaque = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        let mut out = Vec::new();
        Response::new(header[1], opaque, Status::KeyNotFound).write(&mut out);
        stream.write_all(&out)?;
    }
    Ok(())
}

#[test]
fn load_reopens_lost_connections() {
    let url = server(|mut stream| drop(answer(&mut stream, 10)));
    let (code, report) = load(&url, &["--num-threads=2", "--num-cycles=50"]);
    assert_eq!(code, Some(3), "requests failed: {report}");
    assert!(report["connections_lost"].as_u64() >= Some(8), "{report}");
    assert!(
        report["connections_regained"].as_u64() >= Some(6),
        "{report}"
    );
    // Each request is an answer or an error; one that was lost is not sent again.
    let (ops, errors) = (report["ops"].as_u64(), report["errors"].as_u64());
    assert_eq!(
        ops.zip(errors).map(|(ops, errors)| ops + errors),
        Some(100),
        "{report}"
    );
}

#[test]
fn load_ends_when_the_server_does_not_reply() {
    let url = server(|mut stream| drop(stream.read(&mut [0; 1 << 16]).map(|_| thread::park())));
    let flags = ["--num-threads=3", "--num-cycles=2", "--timeout=0.5"];
    let (code, report) = load(&url, &flags);
    assert_eq!(
        (code, report["ops"].as_u64()),
        (Some(3), Some(0)),
        "{report}"
    );
    assert_eq!(
        report["errors_by_kind"]["connection lost: no answer in time"], 6,
        "{report}"
    );
}

#[test]
fn load_reports_garbage_from_the_server() {
    let url = server(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP ready, please say hello\r\n");
        let _ = stream.read(&mut [0; 1 << 16]).map(|_| thread::park());
    });
    let (code, report) = load(&url, &["--num-cycles=3"]);
    assert_eq!(code, Some(3), "{report}");
    let errors = report["errors_by_kind"].as_object().expect("an object");
    assert!(
        errors
            .keys()
            .all(|name| name.contains("not a reply of the binary protocol")),
        "{report}"
    );
}

#[test]
fn load_ends_when_the_server_is_gone() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("memcached://{}", listener.local_addr().expect("an address"));
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        drop(listener);
        let _ = answer(&mut stream, 5);
    });
    let (code, report) = load(&url, &["--num-cycles=50", "--reconnect=0.5"]);
    server.join().expect("the server does not panic");
    assert_eq!(
        (code, report["ops"].as_u64()),
        (Some(1), Some(5)),
        "{report}"
    );
    let errors = report["errors_by_kind"].as_object().expect("an object");
    assert!(
        errors
            .keys()
            .any(|name| name.starts_with("not reconnected: ")),
        "{report}"
    );
}

#[test]
fn open_loop_load_counts_waiting_as_latency() {
    // Every answer takes 20 ms, and a request is due every 5 ms: the n-th waits for all before it.
    let url = server(|mut stream| {
        loop {
            // sleep: the slowness of the server is what the test is about
            thread::sleep(Duration::from_millis(20));
            if answer(&mut stream, 1).is_err() {
                return;
            }
        }
    });
    let (code, report) = load(&url, &["--rate-limit=200", "--num-cycles=40"]);
    assert_eq!(
        (code, report["ops"].as_u64()),
        (Some(0), Some(40)),
        "{report}"
    );
    // The last one is due after 195 ms and answered after 800.
    assert!(report["max_us"].as_f64() > Some(500_000.0), "{report}");
    let (code, report) = load(&url, &["--num-cycles=40"]);
    assert_eq!(
        (code, report["ops"].as_u64()),
        (Some(0), Some(40)),
        "{report}"
    );
    assert!(
        report["p50_us"].as_f64() < Some(200_000.0),
        "a closed loop does not: {report}"
    );
}
