//! Types of settings, and the text of their values.

use super::table::ShownAs;
use kedge_storage::ThrottleConfig;
use kedge_types::setting::{Bytes, SettingValue, expected};
use kedge_vbucket::DurabilityRules;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A setting with a few named values.
pub(super) trait Choice: Copy + 'static {
    const ALL: &'static [Self];

    /// Name in forms and documents of the management.
    fn form_name(self) -> &'static str;
}

/// Makes a type of a few values. A value has a name in settings and statistics, and one in forms of the management.
macro_rules! choice {
    ($(#[$doc:meta])* $type:ident, $kind:literal: $($(#[$variant_doc:meta])* $variant:ident = $name:literal, $form_name:literal;)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $type {
            $($(#[$variant_doc])* #[serde(rename = $name)] $variant,)*
        }

        impl $type {
            /// Returns its name in settings and statistics.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns its name in forms and documents of the management.
            #[must_use]
            pub fn form_name(self) -> &'static str {
                match self {
                    $(Self::$variant => $form_name,)*
                }
            }
        }

        impl Choice for $type {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn form_name(self) -> &'static str {
                self.form_name()
            }
        }

        impl SettingValue for $type {
            const KIND: &'static str = $kind;

            fn read(text: &str) -> Result<Self, String> {
                let found = Self::ALL.iter().find(|it| it.name() == text);
                found.copied().ok_or_else(expected::<Self>)
            }

            fn show(&self) -> String {
                self.name().to_owned()
            }
        }
    };
}

choice! {
    /// Treatment of compressed values.
    CompressionMode, "off, passive or active":
    /// Values are kept inflated.
    Off = "off", "off";
    /// Values that a client sent compressed are kept so.
    #[default]
    Passive = "passive", "passive";
    /// As passive, and the bucket compresses values in memory itself.
    Active = "active", "active";
}

choice! {
    /// Treatment of SyncWrites when a chain has too few nodes for a majority.
    DurabilityFallback, "disabled or active_ack":
    /// They are refused as impossible, and those under way wait for nodes.
    #[default]
    Disabled = "disabled", "disabled";
    /// The active alone is enough.
    ActiveAck = "active_ack", "fallbackToActiveAck";
}

impl DurabilityFallback {
    /// Returns the rules that vBuckets follow.
    #[must_use]
    pub fn rules(self) -> DurabilityRules {
        DurabilityRules {
            active_is_enough: self == Self::ActiveAck,
        }
    }
}

choice! {
    /// The part of a document that may be evicted.
    EvictionPolicy, "value_only or full_eviction":
    /// Values; keys and metadata stay.
    #[default]
    ValueOnly = "value_only", "valueOnly";
    /// Whole documents.
    FullEviction = "full_eviction", "fullEviction";
}

choice! {
    /// Comparison of writes with metadata of their own.
    ConflictResolution, "seqno or lww":
    /// By revision.
    #[default]
    Seqno = "seqno", "seqno";
    /// By CAS: the last write wins.
    Lww = "lww", "lww";
}

choice! {
    /// The moment from which commands run after a start.
    WarmupBehavior, "background or blocking":
    /// As soon as the metadata of the files are known; documents that are not in memory yet are fetched.
    #[default]
    Background = "background", "background";
    /// When all documents that fit are in memory.
    Blocking = "blocking", "blocking";
}

choice! {
    /// The threads that compact.
    CompactionPool, "auxio or writer":
    /// Those for long work. Commits go on beside it, and it is throttled for them.
    #[default]
    Auxio = "auxio", "auxio";
    /// Those that commit, as long as one is free, unthrottled: a compaction takes as long as a hundred commits, and
    /// its thread commits nothing meanwhile. It is there for comparison.
    Writer = "writer", "writer";
}

/// The rate at which compactions read and write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum CompactionRate {
    /// The highest rate that does not delay commits, which is measured all the time.
    #[default]
    Auto,
    /// No limit.
    Off,
    /// Bytes per second that all compactions together read and write.
    BytesPerSec(u64),
}

impl CompactionRate {
    /// Returns the bounds of a throttle; `None` without one.
    #[must_use]
    pub fn bounds(self) -> Option<ThrottleConfig> {
        match self {
            Self::Auto => Some(ThrottleConfig::default()),
            Self::Off => None,
            Self::BytesPerSec(rate) => Some(ThrottleConfig {
                bytes_per_sec_min: rate,
                bytes_per_sec_max: rate,
                ..ThrottleConfig::default()
            }),
        }
    }
}

impl fmt::Display for CompactionRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::BytesPerSec(rate) => write!(f, "{rate}"),
        }
    }
}

impl FromStr for CompactionRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let rate = text.parse().ok().filter(|rate| *rate > 0);
        rate.map(Self::BytesPerSec).ok_or_else(|| {
            format!(
                "compaction_throttle {text:?} is neither auto nor off nor a number of bytes a second"
            )
        })
    }
}

impl TryFrom<String> for CompactionRate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<CompactionRate> for String {
    fn from(throttle: CompactionRate) -> Self {
        throttle.to_string()
    }
}

impl SettingValue for CompactionRate {
    const KIND: &'static str = "auto, off, or bytes a second, such as 50MiB";

    fn read(text: &str) -> Result<Self, String> {
        match Bytes::read(text) {
            Ok(Bytes(0)) => Err(expected::<Self>()),
            Ok(Bytes(rate)) => Ok(Self::BytesPerSec(rate)),
            Err(_) => text.parse().map_err(|_| expected::<Self>()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::BytesPerSec(rate) => Bytes(*rate).show(),
            other => other.to_string(),
        }
    }
}

impl ShownAs<u64> for Bytes {
    fn wrap(value: &u64) -> Self {
        Self(*value)
    }

    fn unwrap(self) -> Result<u64, String> {
        Ok(self.0)
    }
}

impl ShownAs<usize> for Bytes {
    fn wrap(value: &usize) -> Self {
        Self(*value as u64)
    }

    fn unwrap(self) -> Result<usize, String> {
        usize::try_from(self.0).map_err(|_| expected::<Self>())
    }
}

/// Bytes, or none: no limit.
pub(super) struct MaybeBytes(Option<u64>);

impl SettingValue for MaybeBytes {
    const KIND: &'static str = "none, or bytes, such as 512MiB";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            _ => Bytes::read(text).map(|Bytes(bytes)| Self(Some(bytes))),
        }
    }

    fn show(&self) -> String {
        self.0
            .map_or_else(|| "none".to_owned(), |bytes| Bytes(bytes).show())
    }
}

impl ShownAs<Option<u64>> for MaybeBytes {
    fn wrap(value: &Option<u64>) -> Self {
        Self(*value)
    }

    fn unwrap(self) -> Result<Option<u64>, String> {
        Ok(self.0)
    }
}

/// Times of this unit that settings keep as numbers.
macro_rules! times {
    ($($(#[$doc:meta])* $type:ident: $from:ident, $number:ty, $of:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $type(Duration);

        impl SettingValue for $type {
            const KIND: &'static str = Duration::KIND;

            fn read(text: &str) -> Result<Self, String> {
                Duration::read(text).map(Self)
            }

            fn show(&self) -> String {
                self.0.show()
            }
        }

        impl ShownAs<$number> for $type {
            fn wrap(value: &$number) -> Self {
                Self(Duration::$from(u64::from(*value)))
            }

            fn unwrap(self) -> Result<$number, String> {
                <$number>::try_from(self.0.$of()).map_err(|_| "expected a shorter time".to_owned())
            }
        }
    )*};
}

times! {
    /// Milliseconds.
    Millis: from_millis, u64, as_millis;
    /// Seconds.
    Secs: from_secs, u64, as_secs;
    /// Seconds of at most 136 years.
    Secs32: from_secs, u32, as_secs;
}

#[cfg(test)]
mod tests {
    use super::*;
    use kedge_vbucket::MinRatio;

    fn check<T: SettingValue + PartialEq + fmt::Debug>(text: &str, value: Option<&T>, shown: &str) {
        let read = T::read(text).ok();
        assert_eq!(read.as_ref(), value, "{text}");
        if let Some(value) = read {
            assert_eq!(value.show(), shown);
            assert_eq!(T::read(shown), Ok(value), "a shown value is read again");
        }
    }

    #[test]
    fn shown_values_are_read_again() {
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
    }

    #[test]
    fn rate_in_a_settings_file_is_a_word_or_a_number_of_bytes() {
        for throttle in ["auto", "off", "4194304"] {
            let rate = throttle.parse::<CompactionRate>();
            assert_eq!(rate.unwrap().to_string(), throttle);
        }
        for wrong in ["0", "-1", "fast", ""] {
            assert!(wrong.parse::<CompactionRate>().is_err(), "{wrong}");
        }
    }
}
