//! The selection of events that are recorded.

use std::collections::BTreeSet;

use kedge_auth::AuditSettings;

use super::{AuditEvent, LOCAL};

/// The selection, as each event needs it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    enabled: bool,
    disabled: BTreeSet<u32>,
    users: BTreeSet<String>,
}

impl Filter {
    pub(super) fn new(settings: &AuditSettings) -> Self {
        let users = settings.disabled_users.iter();
        let local = users.filter(|user| user.domain == LOCAL);
        Self {
            enabled: settings.enabled,
            disabled: settings.disabled.clone(),
            users: local.map(|user| user.name.clone()).collect(),
        }
    }

    pub(super) const fn is_on(&self) -> bool {
        self.enabled
    }

    /// Returns whether an event is recorded.
    pub(super) fn admits(&self, event: &AuditEvent<'_>) -> bool {
        let descriptor = event.kind.descriptor();
        let is_left_out = self.disabled.contains(&descriptor.id) || self.users.contains(event.user);
        self.enabled && !(descriptor.filterable && is_left_out)
    }
}

#[cfg(test)]
mod tests {
    use kedge_auth::AuditUser;

    use super::*;
    use crate::audit::EventKind;

    #[test]
    fn events_and_users_are_left_out_where_that_is_allowed() {
        let user = |name: &str, domain: &str| AuditUser {
            name: name.to_owned(),
            domain: domain.to_owned(),
        };
        let mut settings = AuditSettings {
            enabled: true,
            rotate_interval_s: 900,
            rotate_bytes: 1 << 20,
            prune_age_s: 0,
            disabled: [EventKind::LoggedIn.id(), EventKind::Denied.id()].into(),
            disabled_users: [user("app", "local"), user("ada", "external")].into(),
        };
        let filter = Filter::new(&settings);
        for (kind, user, expected) in [
            (EventKind::LoggedIn, "ada", false),
            (EventKind::DcpOpened, "ada", true),
            (EventKind::DcpOpened, "app", false),
            // Failures are never left out.
            (EventKind::Denied, "ada", true),
            (EventKind::Denied, "app", true),
            (EventKind::LoginFailed, "app", true),
        ] {
            let event = AuditEvent::new(kind, user);
            assert_eq!(filter.admits(&event), expected, "{kind:?} {user}");
        }
        settings.enabled = false;
        let filter = Filter::new(&settings);
        assert!(!filter.admits(&AuditEvent::new(EventKind::Denied, "ada")));
    }
}
