//! Setting values as text: parsing, formatting and explanation of each kind.

mod nearest;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

pub use nearest::nearest;

/// A type of setting values.
pub trait SettingValue: Sized {
    /// The expected form, for documentation and error messages.
    const KIND: &'static str;

    /// Parses a value.
    ///
    /// # Errors
    /// The expected form, as the end of a sentence.
    fn read(text: &str) -> Result<Self, String>;

    /// Formats the value so that [`SettingValue::read`] parses it back.
    fn show(&self) -> String;
}

/// Returns the error text of [`SettingValue::read`].
#[must_use]
pub fn expected<T: SettingValue>() -> String {
    format!("expected {}", T::KIND)
}

macro_rules! plain {
    ($($type:ty: $kind:literal,)*) => {$(
        impl SettingValue for $type {
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
    u8: "a number from 0 to 255",
    u16: "a number from 0 to 65535",
    u32: "a number from 0 to 4294967295",
    usize: "a number",
    bool: "true or false",
}

impl SettingValue for IpAddr {
    const KIND: &'static str = "an IP address, or localhost";

    fn read(text: &str) -> Result<Self, String> {
        // Resolved without a lookup: it is this address on every machine, and clients of 127.0.0.1 connect to it.
        if text.eq_ignore_ascii_case("localhost") {
            return Ok(Self::V4(Ipv4Addr::LOCALHOST));
        }
        text.parse().map_err(|_| expected::<Self>())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for String {
    const KIND: &'static str = "text";

    fn read(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl SettingValue for PathBuf {
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

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// Units of bytes, largest first.
const BYTE_UNITS: [(&str, u64); 4] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
];

impl SettingValue for Bytes {
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

/// Units of time in milliseconds, largest first.
const TIME_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl SettingValue for Duration {
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

/// Splits the text into digits and unit, without the space between them.
fn split_unit(text: &str) -> (&str, &str) {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: SettingValue + PartialEq + fmt::Debug>(text: &str, value: Option<&T>, shown: &str) {
        let read = T::read(text).ok();
        assert_eq!(read.as_ref(), value, "{text}");
        if let Some(value) = read {
            assert_eq!(value.show(), shown);
            assert_eq!(T::read(shown), Ok(value), "a shown value is read again");
        }
    }

    #[test]
    fn setting_values_survive_a_round_trip_as_text() {
        check("4096", Some(&Bytes(4096)), "4KiB");
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
        check::<u16>("65536", None, "");
        check("true", Some(&true), "true");
        check::<bool>("yes", None, "");
    }
}
