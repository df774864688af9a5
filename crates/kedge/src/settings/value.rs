//! Kinds of values that settings have: how each is read, shown and explained.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use kedge_bucket::{
    CompactionPool, CompactionRate, CompressionMode, DurabilityFallback, EvictionPolicy, MinRatio,
    WarmupBehavior,
};
use kedge_executor::Threads;
use kedge_node::pools::{THREADS_KIND, parse_threads, threads_text};

/// A kind of value.
pub(crate) trait Value: Sized {
    /// What it looks like, for documentation and error messages.
    const KIND: &'static str;

    /// Reads it.
    ///
    /// # Errors
    /// What was expected, as the end of a sentence.
    fn read(text: &str) -> Result<Self, String>;

    /// Shows it so that [`Value::read`] reads the same value.
    fn show(&self) -> String;
}

fn expected<T: Value>() -> String {
    format!("expected {}", T::KIND)
}

macro_rules! plain {
    ($($type:ty: $kind:literal,)*) => {$(
        impl Value for $type {
            const KIND: &'static str = $kind;

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| expected::<Self>())
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

plain! {
    u16: "a number from 0 to 65535",
    u32: "a number from 0 to 4294967295",
    bool: "true or false",
}

impl Value for IpAddr {
    const KIND: &'static str = "an IP address, or localhost";

    fn read(text: &str) -> Result<Self, String> {
        // Looked up by nobody: on every machine it is this one, and 127.0.0.1 is what clients try that are told so.
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(Self::V4(Ipv4Addr::LOCALHOST));
        }
        text.parse().map_err(|_| expected::<Self>())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// A port that is served or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaybePort {
    /// There is none.
    Off,
    /// This one; 0 is any free one.
    At(u16),
}

impl Value for MaybePort {
    const KIND: &'static str = "a number from 0 to 65535, or off";

    fn read(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        let port = text.parse().map_err(|_| expected::<Self>())?;
        Ok(Self::At(port))
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::At(port) => port.to_string(),
        }
    }
}

impl Value for Threads {
    const KIND: &'static str = THREADS_KIND;

    fn read(text: &str) -> Result<Self, String> {
        parse_threads(text)
    }

    fn show(&self) -> String {
        threads_text(*self)
    }
}

impl Value for String {
    const KIND: &'static str = "text";

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for PathBuf {
    const KIND: &'static str = "a path";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err(expected::<Self>())
        } else {
            Ok(Self::from(text))
        }
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// Names of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(pub(crate) Vec<String>);

impl Value for Hosts {
    const KIND: &'static str =
        "host names without ports, separated by commas, such as db1.example.com,.svc.local";

    fn read(text: &str) -> Result<Self, String> {
        let names: Vec<String> = match text.trim() {
            "" => Vec::new(),
            text => text.split(',').map(|name| name.trim().to_owned()).collect(),
        };
        let is_char = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &String| {
            let rest = name.strip_prefix('.').unwrap_or(name);
            name == "*" || (!rest.is_empty() && rest.chars().all(is_char))
        };
        match names.iter().all(is_name) {
            true => Ok(Self(names)),
            false => Err(expected::<Self>()),
        }
    }

    fn show(&self) -> String {
        self.0.join(",")
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Bytes(pub(crate) u64);

/// Units of bytes, largest first.
const BYTE_UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

impl Value for Bytes {
    const KIND: &'static str = "bytes, such as 1048576, 64KiB, 512MiB or 2GiB";

    fn read(text: &str) -> Result<Self, String> {
        let (digits, unit) = split_unit(text);
        let factor = match unit {
            "" | "B" => 1,
            _ => {
                let known = BYTE_UNITS
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(unit));
                known.ok_or_else(expected::<Self>)?.1
            }
        };
        let number: u64 = digits.parse().map_err(|_| expected::<Self>())?;
        number
            .checked_mul(factor)
            .map(Self)
            .ok_or_else(expected::<Self>)
    }

    fn show(&self) -> String {
        match BYTE_UNITS
            .iter()
            .find(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor))
        {
            Some((name, factor)) => format!("{}{name}", self.0 / factor),
            None => self.0.to_string(),
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show())
    }
}

impl Value for CompactionPool {
    const KIND: &'static str = "auxio or writer";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "auxio" => Ok(Self::Auxio),
            "writer" => Ok(Self::Writer),
            _ => Err(expected::<Self>()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Auxio => "auxio",
            Self::Writer => "writer",
        }
        .to_owned()
    }
}

impl Value for EvictionPolicy {
    const KIND: &'static str = "value_only or full_eviction";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "value_only" => Ok(Self::ValueOnly),
            "full_eviction" => Ok(Self::FullEviction),
            _ => Err(expected::<Self>()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::ValueOnly => "value_only",
            Self::FullEviction => "full_eviction",
        }
        .to_owned()
    }
}

impl Value for DurabilityFallback {
    const KIND: &'static str = "disabled or active_ack";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "disabled" => Ok(Self::Disabled),
            "active_ack" => Ok(Self::ActiveAck),
            _ => Err(expected::<Self>()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Disabled => "disabled",
            Self::ActiveAck => "active_ack",
        }
        .to_owned()
    }
}

impl Value for CompressionMode {
    const KIND: &'static str = "off, passive or active";

    fn read(text: &str) -> Result<Self, String> {
        [Self::Off, Self::Passive, Self::Active]
            .into_iter()
            .find(|mode| mode.name() == text)
            .ok_or_else(expected::<Self>)
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

impl Value for MinRatio {
    const KIND: &'static str = "a number from 1 to 1000, such as 1.2";

    fn read(text: &str) -> Result<Self, String> {
        let number = text.parse().ok();
        number.and_then(Self::new).ok_or_else(expected::<Self>)
    }

    fn show(&self) -> String {
        self.get().to_string()
    }
}

impl Value for WarmupBehavior {
    const KIND: &'static str = "background or blocking";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "background" => Ok(Self::Background),
            "blocking" => Ok(Self::Blocking),
            _ => Err(expected::<Self>()),
        }
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

impl Value for CompactionRate {
    const KIND: &'static str = "auto, off, or bytes a second, such as 50MiB";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match Bytes::read(text) {
                Ok(Bytes(rate)) if rate > 0 => Ok(Self::BytesPerSec(rate)),
                _ => Err(expected::<Self>()),
            },
        }
    }

    fn show(&self) -> String {
        match self {
            Self::BytesPerSec(rate) => Bytes(*rate).show(),
            other => other.to_string(),
        }
    }
}

/// Units of time in milliseconds, largest first.
const TIME_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl Value for Duration {
    const KIND: &'static str = "a time, such as 20ms, 5s, 10m or 1h; a bare number is seconds";

    fn read(text: &str) -> Result<Self, String> {
        let (digits, unit) = split_unit(text);
        let number: u64 = digits.parse().map_err(|_| expected::<Self>())?;
        let factor = match unit {
            "" => 1000,
            _ => {
                let known = TIME_UNITS.iter().find(|(name, _)| *name == unit);
                known.ok_or_else(expected::<Self>)?.1
            }
        };
        number
            .checked_mul(factor)
            .map(Self::from_millis)
            .ok_or_else(expected::<Self>)
    }

    fn show(&self) -> String {
        let ms = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        match TIME_UNITS
            .iter()
            .find(|(_, factor)| ms > 0 && ms.is_multiple_of(*factor))
        {
            Some((name, factor)) => format!("{}{name}", ms / factor),
            None => "0s".to_owned(),
        }
    }
}

/// Digits and what follows them, without the space between.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// A setting with a few named values.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident, $kind:literal: $($(#[$vdoc:meta])* $variant:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl Value for $name {
            const KIND: &'static str = $kind;

            fn read(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(expected::<Self>()),
                }
            }

            fn show(&self) -> String {
                match self {
                    $(Self::$variant => $text,)*
                }
                .to_owned()
            }
        }
    };
}

choice! {
    /// What recovery does about damage in the middle of a log.
    Recover, "strict or salvage":
    /// Refuses to start, and says where the damage is.
    Strict = "strict",
    /// Keeps what can be read, and says what was lost.
    Salvage = "salvage",
}

choice! {
    /// Which messages are logged.
    LogLevel, "error, warn, info, debug or trace":
    /// What ends or damages something.
    Error = "error",
    /// What an operator should look at.
    Warn = "warn",
    /// What happens rarely: start, stop, buckets, users.
    Info = "info",
    /// What a developer looks for.
    Debug = "debug",
    /// Everything.
    Trace = "trace",
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Value + PartialEq + fmt::Debug>(text: &str, value: Option<&T>, shown: &str) {
        let read = T::read(text).ok();
        assert_eq!(read.as_ref(), value, "{text}");
        if let Some(value) = read {
            assert_eq!(value.show(), shown);
            assert_eq!(T::read(shown), Ok(value), "what is shown is read again");
        }
    }

    #[test]
    fn values_are_read_and_shown() {
        check("4096", Some(&Bytes(4096)), "4KiB");
        let hosts = |names: &[&str]| Hosts(names.iter().map(|name| (*name).to_owned()).collect());
        check("", Some(&Hosts::default()), "");
        check(
            "a.example, .b,*",
            Some(&hosts(&["a.example", ".b", "*"])),
            "a.example,.b,*",
        );
        for wrong in [",", "a,", ".", "a:80", "http://a", "*.a"] {
            check::<Hosts>(wrong, None, "");
        }
        check("512 MiB", Some(&Bytes(512 << 20)), "512MiB");
        check("3gib", Some(&Bytes(3 << 30)), "3GiB");
        check("1000", Some(&Bytes(1000)), "1000");
        check("0", Some(&Bytes(0)), "0");
        check::<Bytes>("1MB", None, "");
        check::<Bytes>("-1", None, "");
        check::<Bytes>("18446744073709551615TiB", None, "");
        check("5", Some(&Duration::from_secs(5)), "5s");
        check("1500ms", Some(&Duration::from_millis(1500)), "1500ms");
        check("120s", Some(&Duration::from_secs(120)), "2m");
        check("0s", Some(&Duration::ZERO), "0s");
        check::<Duration>("5 years", None, "");
        check("::1", Some(&IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])), "::1");
        let loopback = IpAddr::from([127, 0, 0, 1]);
        check("localhost", Some(&loopback), "127.0.0.1");
        check::<IpAddr>("localhost.localdomain", None, "");
        check("off", Some(&MaybePort::Off), "off");
        check("0", Some(&MaybePort::At(0)), "0");
        check::<MaybePort>("65536", None, "");
        check::<MaybePort>("", None, "");
        check("salvage", Some(&Recover::Salvage), "salvage");
        check::<Recover>("Salvage", None, "");
        check("writer", Some(&CompactionPool::Writer), "writer");
        check::<CompactionPool>("reader", None, "");
        let full = EvictionPolicy::FullEviction;
        check("full_eviction", Some(&full), "full_eviction");
        check("blocking", Some(&WarmupBehavior::Blocking), "blocking");
        check::<WarmupBehavior>("never", None, "");
        check("active", Some(&CompressionMode::Active), "active");
        check::<CompressionMode>("on", None, "");
        let fallback = DurabilityFallback::ActiveAck;
        check("active_ack", Some(&fallback), "active_ack");
        check::<DurabilityFallback>("active", None, "");
        check("1.20", Some(&MinRatio::DEFAULT), "1.2");
        check("3", MinRatio::new(3.0).as_ref(), "3");
        check::<MinRatio>("0.5", None, "");
        check::<MinRatio>("1,2", None, "");
        check("auto", Some(&CompactionRate::Auto), "auto");
        check("off", Some(&CompactionRate::Off), "off");
        let throttle = CompactionRate::BytesPerSec(50 << 20);
        check("51200KiB", Some(&throttle), "50MiB");
        check::<CompactionRate>("0", None, "");
        check::<u16>("65536", None, "");
        check("true", Some(&true), "true");
        check::<bool>("yes", None, "");
        check("balanced", Some(&Threads::Balanced), "balanced");
        check("17", Some(&Threads::Fixed(17)), "17");
        check::<Threads>("0", None, "");
        check::<Threads>("many", None, "");
    }
}
