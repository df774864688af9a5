//! A timer of the system that ends this process, whatever its threads do.
//!
//! The kernel sends SIGKILL at an absolute time of `CLOCK_BOOTTIME`: to threads that run, that wait, or that were stopped by a
//! signal. After a suspension of the machine the timer is due before any thread continues.

use std::io;

use kedge_coordination::Moment;
use nix::sys::signal::{SigEvent, SigevNotify, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

/// The timer.
#[derive(Debug)]
pub(super) struct Watchdog {
    timer: Timer,
    /// The time for which it is armed.
    armed: Option<Moment>,
}

impl Watchdog {
    /// Creates the timer, which is not armed.
    ///
    /// # Errors
    /// When the system refuses a timer.
    pub(super) fn new() -> io::Result<Self> {
        let kill = SigevNotify::SigevSignal {
            signal: Signal::SIGKILL,
            si_value: 0,
        };
        let timer = Timer::new(ClockId::CLOCK_BOOTTIME, SigEvent::new(kill))?;
        Ok(Self { timer, armed: None })
    }

    /// Ends the process at a time, unless it is armed again or disarmed before. A time that has passed ends it at once.
    ///
    /// # Errors
    /// When the system refuses the time.
    pub(super) fn kill_at(&mut self, at: Moment) -> io::Result<()> {
        if self.armed != Some(at) {
            // Zero would disarm it.
            self.set(at.ns().max(1))?;
            self.armed = Some(at);
        }
        Ok(())
    }

    /// Disarms the timer.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn disarm(&mut self) -> io::Result<()> {
        if self.armed.is_some() {
            self.set(0)?;
            self.armed = None;
        }
        Ok(())
    }

    fn set(&mut self, at_ns: u64) -> io::Result<()> {
        const SECOND: u64 = 1_000_000_000;
        // Both fit: the seconds since the boot, and less than a second.
        let at = TimeSpec::new((at_ns / SECOND) as i64, (at_ns % SECOND) as i64);
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME;
        Ok(self.timer.set(Expiration::OneShot(at), flags)?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use kedge_types::SystemClock;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    use super::*;

    const CHILD: &str = "KEDGE_WATCHDOG_CHILD";

    fn now() -> Moment {
        Moment::at_ns(SystemClock::new().mono_ns())
    }

    /// Not a test by itself: the process that the next test stops.
    #[test]
    fn child_that_arms_the_watchdog() {
        let Some(renewed) = std::env::var_os(CHILD) else {
            return;
        };
        let mut watchdog = Watchdog::new().expect("a timer");
        // Neither of these times ends the process.
        watchdog
            .kill_at(now().plus(Duration::from_millis(1)))
            .expect("armed");
        watchdog.disarm().expect("disarmed");
        let soon = now().plus(Duration::from_secs(30));
        watchdog.kill_at(soon).expect("armed");
        if renewed == "soon" {
            let at = now().plus(Duration::from_millis(300));
            watchdog.kill_at(at).expect("armed");
        }
        println!("\narmed");
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn stopped_process_is_killed_at_its_time() {
        let me = std::env::current_exe().expect("the test has a file");
        let mut child = Command::new(me)
            .args(["--exact", "--nocapture", "--test-threads=1"])
            .arg("lease::watchdog::tests::child_that_arms_the_watchdog")
            .env(CHILD, "soon")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test can be started again");
        let out = child.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "armed"));
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        // It may be dead already on a slow machine.
        let _ = kill(pid, Signal::SIGSTOP);
        // Nobody continues it.
        let status = child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    }
}
