//! Runs a command that uses a faulty disk: `faulty_disk CONTROL BELOW AT COMMAND ...` mounts the file system on the directory AT,
//! over BELOW, runs the command, and ends with its exit code. CONTROL is a FIFO: a line has the milliseconds by which syncs take
//! longer from then on.
//!
//! `unshare -rmpf --kill-child` gives it the right to mount, and ends the command with it.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, exit};
use std::thread;
use std::time::Duration;

use kedge_faulty_disk::{Call, Effect, Fault, FaultyDisk};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [control, below, at, program, args @ ..] = &words[..] else {
        eprintln!("usage: faulty_disk CONTROL BELOW AT COMMAND ...");
        exit(2);
    };
    let disk = FaultyDisk::mount(Path::new(below), Path::new(at));
    let mut command = Command::new(program).args(args).spawn();
    let command = command.as_mut().expect("the command starts");
    let control = control.clone();
    thread::spawn(move || {
        let control = File::open(control).expect("a FIFO");
        let mut fault = None;
        for line in BufReader::new(control).lines().map_while(Result::ok) {
            let time = line.parse().map(Duration::from_millis);
            drop(fault.take());
            fault = Some(disk.fault(Fault {
                calls: &[Call::Sync],
                concerns: |_| true,
                effect: Effect::Delay(time.expect("milliseconds")),
            }));
        }
    });
    let status = command.wait().expect("the command runs");
    exit(status.code().unwrap_or(1));
}
