//! Signature version 4 of AWS.

use std::fmt::Write as _;

use ring::{digest, hmac};
use zeroize::Zeroizing;

use super::credentials::Credentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A time in the form `YYYYMMDD'T'HHMMSS'Z'`.
pub(super) struct AmzDate(String);

impl AmzDate {
    /// Returns the form of a Unix time.
    pub(super) fn of(unix_secs: u64) -> Self {
        let (days, secs) = (unix_secs / 86_400, unix_secs % 86_400);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
        Self(format!(
            "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z"
        ))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    fn day(&self) -> &str {
        self.0.split('T').next().unwrap_or_default()
    }
}

/// Returns year, month and day of the days since 1970, by the Gregorian calendar: years begin in March, so that a leap day is the
/// last one.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// The scope of a signature.
pub(super) struct SigningScope<'s> {
    pub(super) date: &'s AmzDate,
    pub(super) region: &'s str,
    pub(super) service: &'s str,
}

/// Returns the value of the header `Authorization`. The headers are sorted by their names, which are in lower case.
pub(super) fn sign(
    scope: &SigningScope<'_>,
    credentials: &Credentials,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &[u8],
) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let mut canonical = Zeroizing::new(format!("{method}\n{path}\n\n"));
    for (name, value) in headers {
        let _ = writeln!(canonical, "{name}:{}", value.trim());
    }
    let _ = write!(canonical, "\n{names}\n{}", sha256_hex(body));
    let of_scope = format!(
        "{}/{}/{}/aws4_request",
        scope.date.day(),
        scope.region,
        scope.service
    );
    let date = scope.date.as_str();
    let to_sign = format!(
        "{ALGORITHM}\n{date}\n{of_scope}\n{}",
        sha256_hex(canonical.as_bytes())
    );
    let key = signing_key(scope, &credentials.secret);
    let signature = hex(hmac::sign(&key, to_sign.as_bytes()).as_ref());
    let id = &credentials.id;
    format!("{ALGORITHM} Credential={id}/{of_scope}, SignedHeaders={names}, Signature={signature}")
}

fn signing_key(scope: &SigningScope<'_>, secret: &str) -> hmac::Key {
    let secret = Zeroizing::new(format!("AWS4{secret}"));
    let mut key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    for part in [
        scope.date.day(),
        scope.region,
        scope.service,
        "aws4_request",
    ] {
        let derived = hmac::sign(&key, part.as_bytes());
        key = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
    }
    key
}

fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (secs, expected) in [
            (0, "19700101T000000Z"),
            (951_782_400, "20000229T000000Z"),
            (1_440_938_160, "20150830T123600Z"),
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(AmzDate::of(secs).as_str(), expected);
        }
    }

    /// The cases `get-vanilla` and `post-vanilla` of the test suite that AWS publishes.
    #[test]
    fn signatures_match_the_published_ones() {
        let credentials = Credentials {
            id: "AKIDEXAMPLE".to_owned(),
            secret: Zeroizing::new("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned()),
            token: None,
        };
        let date = AmzDate::of(1_440_938_160);
        let scope = SigningScope {
            date: &date,
            region: "us-east-1",
            service: "service",
        };
        let headers = [
            ("host", "example.amazonaws.com"),
            ("x-amz-date", "20150830T123600Z"),
        ];
        for (method, signature) in [
            (
                "GET",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "POST",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
        ] {
            assert_eq!(
                sign(&scope, &credentials, (method, "/"), &headers, b""),
                format!(
                    "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                     SignedHeaders=host;x-amz-date, Signature={signature}"
                )
            );
        }
    }
}
