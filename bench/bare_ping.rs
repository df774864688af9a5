//! The lower bound of a message between two nodes of one machine: a round trip over loopback TCP, nothing else.
//!
//! `bare_ping BYTES SECONDS` sends BYTES to a thread that replies with the 24 bytes of a header, and prints one JSON
//! object with latencies in microseconds. Uses only the standard library: `rustc -O` compiles it.

mod latencies;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const ANSWER_BYTES: usize = 24;

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, bytes, seconds] = args.as_slice() else {
        eprintln!("usage: bare_ping BYTES SECONDS");
        std::process::exit(2);
    };
    let bytes: usize = bytes.parse().expect("BYTES is a number");
    let seconds: f64 = seconds.parse().expect("SECONDS is a number");
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> io::Result<()> {
        let (mut peer, _) = listener.accept()?;
        peer.set_nodelay(true)?;
        let mut message = vec![0; bytes];
        loop {
            peer.read_exact(&mut message)?;
            peer.write_all(&[0; ANSWER_BYTES])?;
        }
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (message, mut answer) = (vec![b'x'; bytes], [0; ANSWER_BYTES]);
    let mut latencies_ns = Vec::new();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs_f64(seconds) {
        let start = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        latencies_ns.push(start.elapsed().as_nanos() as u64);
    }
    latencies::print("round_trips", latencies_ns, began.elapsed().as_secs_f64());
    Ok(())
}
