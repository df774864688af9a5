//! The value of a lease's key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::lease::LEASE_TIME_MAX;
use crate::{Compare, Entry, Transaction};

/// The version of the record's format.
const VERSION: u32 = 1;

/// The value of a lease's key, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    version: u32,
    /// The UUID of the holder's process.
    pub process: String,
    /// The lock that the process holds until it ends, see [`super::LeaseHolder::holding`]; empty if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub lock: String,
    /// The number of the renewal, which this process counts.
    pub counter: u64,
    /// The lease time in milliseconds, which observers wait for.
    pub lease_ms: u64,
    /// True if the lease was taken from its holder: the holder serves no more once its time is over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revoked: bool,
    /// The state of the holder, for observers.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub health: serde_json::Value,
}

impl LeaseRecord {
    pub(super) fn new(
        (process, lock): (&str, &str),
        counter: u64,
        time: Duration,
        health: &serde_json::Value,
    ) -> Self {
        LeaseRecord {
            version: VERSION,
            process: process.to_owned(),
            lock: lock.to_owned(),
            counter,
            lease_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            revoked: false,
            health: health.clone(),
        }
    }

    /// Parses the value of a key; `None` if it is no record of this version or of a later one.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let record: Self = serde_json::from_slice(value).ok()?;
        (record.version >= VERSION).then_some(record)
    }

    /// Returns the lease time.
    #[must_use]
    pub const fn time(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // A struct of texts and numbers has a JSON text.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Returns the transaction that takes a lease from a holder that may be alive. The holder notices at its next renewal,
    /// at which it stops. Who revokes it waits until the record has lapsed for a [`super::LeaseObserver`].
    #[must_use]
    pub fn revocation(entry: &Entry) -> Transaction {
        let record = match Self::parse(&entry.value) {
            Some(record) => LeaseRecord {
                revoked: true,
                ..record
            },
            None => LeaseRecord {
                revoked: true,
                ..Self::new(("", ""), 0, LEASE_TIME_MAX, &serde_json::Value::Null)
            },
        };
        Transaction::new()
            .when(Compare::Unchanged(entry.key.clone(), entry.mod_revision))
            .put(&entry.key, record.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Op, Revision};

    #[test]
    fn records_are_read_as_they_were_written() {
        let health = serde_json::json!({"disk": "ok"});
        let record = LeaseRecord::new(("p", "l"), 7, Duration::from_secs(5), &health);
        let text = record.encode();
        assert_eq!(
            String::from_utf8_lossy(&text),
            r#"{"version":1,"process":"p","lock":"l","counter":7,"lease_ms":5000,"health":{"disk":"ok"}}"#
        );
        assert_eq!(LeaseRecord::parse(&text), Some(record));
        let later = br#"{"version":2,"process":"p","counter":7,"lease_ms":5000,"new":1}"#;
        assert_eq!(LeaseRecord::parse(later).map(|it| it.counter), Some(7));
        assert_eq!(LeaseRecord::parse(b"{}"), None);
    }

    #[test]
    fn revocation_keeps_the_time_for_which_observers_wait() {
        let record = LeaseRecord::new(
            ("p", "l"),
            7,
            Duration::from_secs(5),
            &serde_json::Value::Null,
        );
        for (value, lease_ms) in [(record.encode(), 5_000), (b"?".to_vec(), 120_000)] {
            let entry = Entry {
                key: "alive".to_owned(),
                value,
                create_revision: Revision(3),
                mod_revision: Revision(4),
            };
            let revocation = LeaseRecord::revocation(&entry);
            let compare = Compare::Unchanged("alive".to_owned(), Revision(4));
            assert_eq!(revocation.compares(), [compare]);
            let [Op::Put { value, .. }] = revocation.ops() else {
                panic!("the record is kept");
            };
            let revoked = LeaseRecord::parse(value).expect("a record");
            assert!(revoked.revoked);
            assert_eq!(revoked.lease_ms, lease_ms);
        }
    }
}
