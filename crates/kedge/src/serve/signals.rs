//! SIGTERM and SIGINT, which stop the server, and SIGHUP, after which it loads files again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::{io, thread};

use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::ServeEvent;

/// The exit code when a second signal comes before the server has stopped, as shells have it for SIGINT.
const EXIT_SECOND_SIGNAL: i32 = 130;

/// Requests a SIGTERM for this process when its parent ends.
pub(super) fn stop_with_parent() {
    // If the system does not support that, the server goes on as without the setting.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
}

/// Sends [`ServeEvent::Stop`] for a signal that stops the server; a second one ends the process at once. SIGHUP is a
/// [`ServeEvent::Reload`], also without files to load again: it must not end a server whose terminal is closed.
pub(super) fn watch(events: Sender<ServeEvent>) -> io::Result<()> {
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // Handlers run in the order of their registration: the first signal finds the flag down and raises it.
        flag::register_conditional_shutdown(signal, EXIT_SECOND_SIGNAL, Arc::clone(&stopping))?;
        flag::register(signal, Arc::clone(&stopping))?;
    }
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::Builder::new()
        .name("kedge-signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                let event = match signal {
                    SIGHUP => ServeEvent::Reload,
                    SIGTERM => ServeEvent::Stop("SIGTERM"),
                    _ => ServeEvent::Stop("SIGINT"),
                };
                if events.send(event).is_err() {
                    return;
                }
            }
        })?;
    Ok(())
}
