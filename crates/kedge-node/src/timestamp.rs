//! Times in the formats of people and other programs.

/// Formats milliseconds since 1970 as ISO 8601, in UTC.
pub fn iso_8601(unix_ms: u64) -> String {
    let (unix_secs, millis) = (unix_ms / 1_000, unix_ms % 1_000);
    // Days to a date as in Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days: the year
    // begins in March, so that the leap day comes last.
    let days = unix_secs / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let secs = unix_secs % 86_400;
    let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Parses what [`iso_8601`] has formatted, as milliseconds since 1970.
pub(crate) fn unix_ms_of(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || year < 1970 {
        return None;
    }
    // The inverse of the above: `days_from_civil` of the same author.
    let year = year - u64::from(month <= 2);
    let (era, year_of_era) = (year / 400, year % 400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let secs = days * 86_400 + hour * 3_600 + minute * 60 + second;
    Some(secs * 1_000 + number(20, 23)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_formatted() {
        for (secs, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(iso_8601(secs * 1_000), expected);
            assert_eq!(unix_ms_of(expected), Some(secs * 1_000));
        }
        assert_eq!(
            unix_ms_of("2024-02-29T23:59:59.007Z"),
            Some(1_709_251_199_007)
        );
        for wrong in [
            "",
            "Z",
            "2024",
            "2024-13-01T00:00:00.000Z",
            "2024-02-29T23:59:59Z",
        ] {
            assert_eq!(unix_ms_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn timestamps_keep_milliseconds() {
        assert_eq!(iso_8601(1_007), "1970-01-01T00:00:01.007Z");
    }
}
