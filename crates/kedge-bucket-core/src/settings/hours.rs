//! The time of the day for automatic compaction. Days are those of UTC.

use super::table::ShownAs;
use kedge_types::setting::{SettingValue, expected};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const MINUTE: u64 = 60;
const DAY: u64 = 24 * 60 * MINUTE;
/// Minutes of a day.
const MINUTES: u16 = 24 * 60;

/// The part of the day in which files are compacted without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactionHours {
    /// Its beginning, in minutes from midnight on, 0 to 1,439.
    pub from_minute: u16,
    /// Its end, likewise; an end before the beginning is on the next day.
    pub to_minute: u16,
    /// True if compactions that run at the end are given up, until the next day.
    pub abort_outside: bool,
}

impl CompactionHours {
    pub(super) fn check(self) -> Result<(), String> {
        let (from, to) = (self.from_minute, self.to_minute);
        if from.max(to) >= MINUTES || from == to {
            return Err(format!(
                "minutes {from} and {to} of the day are not two of 0 to {}",
                MINUTES - 1
            ));
        }
        Ok(())
    }

    /// Returns the seconds from `unix_secs` to the next beginning of this minute of the day, 1 to a day.
    fn secs_to(minute: u16, unix_secs: u64) -> u64 {
        let at = u64::from(minute) * MINUTE;
        DAY - (unix_secs % DAY + DAY - at) % DAY
    }

    /// Returns the seconds until it ends; `None` when it is not that time of the day.
    #[must_use]
    pub fn secs_left(self, unix_secs: u64) -> Option<u64> {
        let to_end = Self::secs_to(self.to_minute, unix_secs);
        let to_begin = Self::secs_to(self.from_minute, unix_secs);
        // Inside, the end comes first.
        (to_end < to_begin).then_some(to_end)
    }

    /// Returns the seconds until it begins, 1 to a day.
    #[must_use]
    pub fn secs_to_begin(self, unix_secs: u64) -> u64 {
        Self::secs_to(self.from_minute, unix_secs)
    }
}

impl FromStr for CompactionHours {
    type Err = String;

    /// Reads text such as `22:00-05:30`.
    fn from_str(text: &str) -> Result<Self, String> {
        let minute_of = |time: &str| {
            let (hour, minute) = time.split_once(':')?;
            let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        let hours = text.split_once('-').and_then(|(from, to)| {
            Some(Self {
                from_minute: minute_of(from)?,
                to_minute: minute_of(to)?,
                abort_outside: false,
            })
        });
        let hours = hours.ok_or("it has to be as in 22:00-05:30")?;
        hours.check().map(|()| hours)
    }
}

impl fmt::Display for CompactionHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.from_minute, self.to_minute);
        let (from, from_minute, to, to_minute) = (from / 60, from % 60, to / 60, to % 60);
        write!(f, "{from:02}:{from_minute:02}-{to:02}:{to_minute:02}")
    }
}

/// Hours, or none: any time.
pub(super) struct MaybeHours(Option<CompactionHours>);

impl SettingValue for MaybeHours {
    const KIND: &'static str = "none, or times of UTC, such as 22:00-05:30";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            _ => {
                let hours = text.parse().map_err(|_| expected::<Self>())?;
                Ok(Self(Some(hours)))
            }
        }
    }

    fn show(&self) -> String {
        self.0
            .map_or_else(|| "none".to_owned(), |hours| hours.to_string())
    }
}

impl ShownAs<Option<CompactionHours>> for MaybeHours {
    fn wrap(value: &Option<CompactionHours>) -> Self {
        Self(*value)
    }

    fn unwrap(self) -> Result<Option<CompactionHours>, String> {
        Ok(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_NOON: u64 = 19_000 * DAY + DAY / 2;

    fn hours(from: (u16, u16), to: (u16, u16)) -> CompactionHours {
        CompactionHours {
            from_minute: from.0 * 60 + from.1,
            to_minute: to.0 * 60 + to.1,
            abort_outside: false,
        }
    }

    #[test]
    fn seconds_to_end_and_beginning_wrap_around_midnight() {
        let day = hours((8, 30), (17, 0));
        let night = hours((22, 0), (5, 0));
        // (what, seconds from noon, seconds left, seconds to the beginning)
        for (what, from_noon, left, to_begin) in [
            (day, 0, Some(5 * 3_600), 20 * 3_600 + 1_800),
            (day, 5 * 3_600 - 1, Some(1), 15 * 3_600 + 1_801),
            (day, 5 * 3_600, None, 15 * 3_600 + 1_800),
            (day, 20 * 3_600 + 1_799, None, 1),
            (day, 20 * 3_600 + 1_800, Some(8 * 3_600 + 1_800), DAY),
            (night, 0, None, 10 * 3_600),
            (night, 10 * 3_600, Some(7 * 3_600), DAY),
            (night, 12 * 3_600, Some(5 * 3_600), 22 * 3_600),
            (night, 17 * 3_600 - 1, Some(1), 17 * 3_600 + 1),
            (night, 17 * 3_600, None, 17 * 3_600),
        ] {
            let now = AT_NOON + from_noon;
            assert_eq!(what.secs_left(now), left, "{what:?} {from_noon}");
            assert_eq!(what.secs_to_begin(now), to_begin, "{what:?} {from_noon}");
        }
        assert_eq!(day.check(), Ok(()));
        assert_eq!(night.check(), Ok(()));
        for wrong in [
            hours((1, 0), (1, 0)),
            hours((24, 0), (1, 0)),
            hours((0, 0), (0, 1_440)),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn hours_are_parsed_and_shown_as_text() {
        let night: CompactionHours = "22:00-5:30".parse().unwrap();
        assert_eq!(night, hours((22, 0), (5, 30)));
        assert_eq!(night.to_string(), "22:00-05:30");
        for wrong in [
            "",
            "22:00",
            "22-5",
            "22:00-5:x",
            "22:00-300:1",
            "1:00-1:00",
            "0:00-24:00",
        ] {
            assert!(wrong.parse::<CompactionHours>().is_err(), "{wrong}");
        }
    }
}
