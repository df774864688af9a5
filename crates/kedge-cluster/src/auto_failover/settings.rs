//! The settings of automatic failover, and changes of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{ClusterError, document};

const VERSION: u32 = 1;

/// The longest timeout, in seconds: as long a cluster serves nothing of a lost node. It is the time of a node's lease, too.
pub const AUTO_FAILOVER_TIMEOUT_SECS_MAX: u32 = 120;
const TIMEOUT_SECS_MIN: u32 = 1;
const TIMEOUT_SECS_DEFAULT: u32 = 5;
const MAX_COUNT_MAX: u32 = 100;
const PERIOD_SECS_MIN: u32 = 5;
const PERIOD_SECS_MAX: u32 = 3_600;
const PERIOD_SECS_DEFAULT: u32 = 10;

/// An option that makes trouble with the disk a reason for a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskOption {
    /// True if it is one.
    pub enabled: bool,
    /// The time in seconds for which the trouble must have lasted.
    pub time_period: u32,
}

impl DiskOption {
    /// Returns the time for which the trouble must have lasted.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_secs(self.time_period.into())
    }
}

impl Default for DiskOption {
    fn default() -> Self {
        Self {
            enabled: true,
            time_period: PERIOD_SECS_DEFAULT,
        }
    }
}

/// The settings of automatic failover, and the number of nodes that were failed over. The document of the coordination
/// store's key `settings/auto_failover`, with the names of the REST interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AutoFailoverSettings {
    version: u32,
    /// True if nodes are failed over automatically.
    pub enabled: bool,
    /// The time in seconds after which a node that is not heard of is down; the time of its lease.
    pub timeout: u32,
    /// The number of nodes that were failed over since the last reset.
    pub count: u32,
    /// The largest count.
    pub max_count: u32,
    /// True if there is no largest count.
    pub disable_max_count: bool,
    /// A disk whose calls fail.
    pub failover_on_data_disk_issues: DiskOption,
    /// A disk that is slow, or does not respond.
    pub failover_on_data_disk_non_responsiveness: DiskOption,
    /// True if a rebalance is stopped for a failover.
    pub can_abort_rebalance: bool,
    /// True if no failover may leave a vBucket with fewer nodes than SyncWrites need.
    pub failover_preserve_durability_majority: bool,
    /// Stored for clients of the REST interface; there are no ephemeral buckets.
    pub allow_failover_ephemeral_no_replicas: bool,
}

impl Default for AutoFailoverSettings {
    fn default() -> Self {
        Self {
            version: VERSION,
            enabled: true,
            timeout: TIMEOUT_SECS_DEFAULT,
            count: 0,
            max_count: 1,
            disable_max_count: false,
            failover_on_data_disk_issues: DiskOption::default(),
            failover_on_data_disk_non_responsiveness: DiskOption::default(),
            can_abort_rebalance: true,
            failover_preserve_durability_majority: false,
            allow_failover_ephemeral_no_replicas: false,
        }
    }
}

impl AutoFailoverSettings {
    /// Reads a document that [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// `Damaged`, `Version`; `Map` when a value is out of its range.
    pub fn from_json(json: &[u8]) -> Result<Self, ClusterError> {
        let settings: Self = document::read(json, VERSION)?;
        let errors = settings.check();
        match errors.first() {
            None => Ok(settings),
            Some(FieldError { field, text }) => Err(ClusterError::Map(format!(
                "the settings of automatic failover: {field} {text}"
            ))),
        }
    }

    /// Encodes the document.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers always serialise")
    }

    /// Returns the timeout.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// Returns the number of nodes that may still be failed over before the count is reset.
    #[must_use]
    pub fn left(&self) -> u32 {
        match self.disable_max_count {
            true => u32::MAX,
            false => self.max_count.saturating_sub(self.count),
        }
    }

    /// Returns the settings after the failover of `nodes` more.
    #[must_use]
    pub fn counted(&self, nodes: usize) -> Self {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        Self {
            count: self.count.saturating_add(nodes),
            ..self.clone()
        }
    }

    fn check(&self) -> Vec<FieldError> {
        let periods = PERIOD_SECS_MIN..=PERIOD_SECS_MAX;
        let ranges = [
            (
                "timeout",
                self.timeout,
                TIMEOUT_SECS_MIN..=AUTO_FAILOVER_TIMEOUT_SECS_MAX,
            ),
            ("maxCount", self.max_count, 1..=MAX_COUNT_MAX),
            (
                "failoverOnDataDiskIssues[timePeriod]",
                self.failover_on_data_disk_issues.time_period,
                periods.clone(),
            ),
            (
                "failoverOnDataDiskNonResponsiveness[timePeriod]",
                self.failover_on_data_disk_non_responsiveness.time_period,
                periods,
            ),
        ];
        let wrong = ranges
            .into_iter()
            .filter(|(_, n, range)| !range.contains(n));
        wrong
            .map(|(field, _, range)| FieldError {
                field,
                text: format!(
                    "must be an integer from {} to {}",
                    range.start(),
                    range.end()
                ),
            })
            .collect()
    }
}

/// The error of a field of a change, by its name in the REST interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field.
    pub field: &'static str,
    /// The text.
    pub text: String,
}

/// A change of a [`DiskOption`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskOptionChange {
    /// The new `enabled`.
    pub enabled: Option<bool>,
    /// The new `timePeriod`.
    pub time_period: Option<u32>,
}

impl DiskOptionChange {
    fn apply(self, option: &mut DiskOption) {
        option.enabled = self.enabled.unwrap_or(option.enabled);
        option.time_period = self.time_period.unwrap_or(option.time_period);
    }
}

/// A change of the settings; `None` keeps a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutoFailoverChange {
    /// The new `enabled`, which every change gives.
    pub enabled: Option<bool>,
    /// The new `timeout`, which a change gives that enables it.
    pub timeout: Option<u32>,
    /// The new `maxCount`.
    pub max_count: Option<u32>,
    /// The new `disableMaxCount`.
    pub disable_max_count: Option<bool>,
    /// The changes of `failoverOnDataDiskIssues`.
    pub data_disk_issues: DiskOptionChange,
    /// The changes of `failoverOnDataDiskNonResponsiveness`.
    pub data_disk_non_responsiveness: DiskOptionChange,
    /// The new `canAbortRebalance`.
    pub can_abort_rebalance: Option<bool>,
    /// The new `failoverPreserveDurabilityMajority`.
    pub preserve_durability_majority: Option<bool>,
    /// The new `allowFailoverEphemeralNoReplicas`.
    pub allow_ephemeral_no_replicas: Option<bool>,
}

impl AutoFailoverChange {
    /// Returns the settings with the change.
    ///
    /// # Errors
    /// The error of each field that is missing or wrong.
    pub fn apply(
        &self,
        settings: &AutoFailoverSettings,
    ) -> Result<AutoFailoverSettings, Vec<FieldError>> {
        let mut next = settings.clone();
        let mut errors = self.missing();
        let set = |value: &mut bool, change: Option<bool>| *value = change.unwrap_or(*value);
        set(&mut next.enabled, self.enabled);
        set(&mut next.disable_max_count, self.disable_max_count);
        set(&mut next.can_abort_rebalance, self.can_abort_rebalance);
        set(
            &mut next.failover_preserve_durability_majority,
            self.preserve_durability_majority,
        );
        set(
            &mut next.allow_failover_ephemeral_no_replicas,
            self.allow_ephemeral_no_replicas,
        );
        next.timeout = self.timeout.unwrap_or(next.timeout);
        if self.max_count.is_some() && next.disable_max_count {
            errors.push(FieldError {
                field: "maxCount",
                text: "cannot be set while disableMaxCount is true".to_owned(),
            });
        }
        next.max_count = self.max_count.unwrap_or(next.max_count);
        let issues = &mut next.failover_on_data_disk_issues;
        let non_responsive = &mut next.failover_on_data_disk_non_responsiveness;
        self.data_disk_issues.apply(issues);
        self.data_disk_non_responsiveness.apply(non_responsive);
        if !next.enabled {
            issues.enabled = false;
            non_responsive.enabled = false;
        }
        errors.extend(next.check());
        match errors.is_empty() {
            true => Ok(next),
            false => Err(errors),
        }
    }

    /// Returns the errors of fields that are missing.
    fn missing(&self) -> Vec<FieldError> {
        let is_lacking =
            |option: DiskOptionChange| option.enabled == Some(true) && option.time_period.is_none();
        let fields = [
            ("enabled", self.enabled.is_none()),
            (
                "timeout",
                self.enabled == Some(true) && self.timeout.is_none(),
            ),
            (
                "failoverOnDataDiskIssues[timePeriod]",
                is_lacking(self.data_disk_issues),
            ),
            (
                "failoverOnDataDiskNonResponsiveness[timePeriod]",
                is_lacking(self.data_disk_non_responsiveness),
            ),
        ];
        let missing = fields.into_iter().filter(|(_, is_missing)| *is_missing);
        missing
            .map(|(field, _)| FieldError {
                field,
                text: "must be given".to_owned(),
            })
            .collect()
    }
}

/// An edit of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoFailoverEdit {
    /// A change of settings.
    Change(AutoFailoverChange),
    /// The count becomes zero.
    ResetCount,
}

impl AutoFailoverEdit {
    /// Returns the settings after the edit.
    ///
    /// # Errors
    /// The error of each field that is missing or wrong.
    pub fn apply(
        &self,
        settings: &AutoFailoverSettings,
    ) -> Result<AutoFailoverSettings, Vec<FieldError>> {
        match self {
            AutoFailoverEdit::Change(change) => change.apply(settings),
            AutoFailoverEdit::ResetCount => Ok(AutoFailoverSettings {
                count: 0,
                ..settings.clone()
            }),
        }
    }
}
