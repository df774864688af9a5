//! A node's own view of its state, which its lease record carries.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::AutoFailoverSettings;
use crate::Revision;

/// The health of a node, as it judges itself. Unknown fields are ignored, so that neighbouring releases interoperate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeHealth {
    /// The disk of its data directory.
    #[serde(default, skip_serializing_if = "DiskHealth::is_good")]
    pub disk: DiskHealth,
    /// The revision of the map that the node follows, or followed a moment ago.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<Revision>,
}

/// The health of a disk: for how long each kind of trouble has lasted. Zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DiskHealth {
    /// The time in milliseconds for which calls have failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failing_ms: u64,
    /// The age in milliseconds of the oldest call that has not returned, if it is slow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hung_ms: u64,
    /// The time in milliseconds for which at least half of the calls have been slow.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slow_ms: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A kind of trouble with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// Reads, writes or syncs fail.
    Failing,
    /// A call does not return.
    Hung,
    /// At least half of the calls are slow.
    Slow,
}

impl fmt::Display for DiskTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DiskTrouble::Failing => "fails",
            DiskTrouble::Hung => "hangs",
            DiskTrouble::Slow => "is slow",
        })
    }
}

impl DiskHealth {
    /// Returns whether there is no trouble.
    #[must_use]
    pub fn is_good(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the trouble that has lasted long enough for a failover, by these settings, and its duration.
    #[must_use]
    pub fn trouble(&self, settings: &AutoFailoverSettings) -> Option<(DiskTrouble, Duration)> {
        let issues = settings.failover_on_data_disk_issues;
        let non_responsive = settings.failover_on_data_disk_non_responsiveness;
        let kinds = [
            (DiskTrouble::Failing, self.failing_ms, issues),
            (DiskTrouble::Hung, self.hung_ms, non_responsive),
            (DiskTrouble::Slow, self.slow_ms, non_responsive),
        ];
        kinds.into_iter().find_map(|(trouble, lasted_ms, option)| {
            let lasted = Duration::from_millis(lasted_ms);
            (option.enabled && lasted >= option.period()).then_some((trouble, lasted))
        })
    }
}
