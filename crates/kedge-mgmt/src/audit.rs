//! The settings of the audit log: `/settings/audit`, as in the original. The nodes of a cluster share them with the users.
//!
//! Each node writes its own log in its data directory.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use axum::http::StatusCode;
use kedge_auth::{AuditSettings, AuditUser, Privilege};
use kedge_node::audit::{AuditEvent, EventDescriptor, EventKind};
use serde_json::{Map, Value, json};

use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;
use super::users::refusal;

/// The range of the time after which a file is rotated, in seconds.
const INTERVALS_S: std::ops::RangeInclusive<u32> = 900..=604_800;
/// The range of the size at which a file is rotated, in bytes. 0 stands for the largest.
const SIZES: std::ops::RangeInclusive<u64> = 1 << 20..=500 << 20;
/// The range of the age at which older files are removed, in minutes. 0 stands for never.
const PRUNE_MINUTES: std::ops::RangeInclusive<u32> = 0..=35_791_394;
/// The domains of users.
const DOMAINS: [&str; 2] = ["local", "external"];
/// The largest number of users of whom events are left out.
const USERS_MAX: usize = 1_024;

/// Returns the settings in force.
fn settings(call: &RequestContext) -> Result<AuditSettings, EarlyReply> {
    let settings = call.state.parts.users.audit_settings();
    settings.ok_or_else(|| {
        let text = "This server has no audit log.";
        EarlyReply::text(StatusCode::NOT_FOUND, text)
    })
}

fn document(call: &RequestContext, settings: &AuditSettings) -> Value {
    let mut hasher = DefaultHasher::new();
    settings.hash(&mut hasher);
    json!({
        "auditdEnabled": settings.enabled,
        "disabled": settings.disabled,
        "disabledUsers": settings.disabled_users,
        "logPath": call.state.parts.data_dir.display().to_string(),
        "pruneAge": settings.prune_age_s / 60,
        "rotateInterval": settings.rotate_interval_s,
        "rotateSize": settings.rotate_bytes,
        "uid": hasher.finish().to_string(),
    })
}

/// The form of a change.
struct Change<'f> {
    settings: AuditSettings,
    log_path: &'f str,
    errors: Map<String, Value>,
}

impl Change<'_> {
    fn number<T: std::str::FromStr + PartialOrd + std::fmt::Display>(
        &mut self,
        name: &str,
        text: &str,
        range: &std::ops::RangeInclusive<T>,
    ) -> Option<T> {
        let number = text.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = (range.start(), range.end());
            self.error(
                name,
                format!("The value must be an integer in range from {least} to {most}"),
            );
        }
        number
    }

    fn error(&mut self, name: &str, why: impl Into<String>) {
        self.errors.insert(name.to_owned(), why.into().into());
    }

    fn field(&mut self, name: &str, text: &str) {
        match name {
            "auditdEnabled" => match text {
                "true" => self.settings.enabled = true,
                "false" => self.settings.enabled = false,
                _ => self.error(name, "The value must be one of the following: [true,false]"),
            },
            "rotateInterval" => {
                if let Some(secs) = self.number(name, text, &INTERVALS_S) {
                    self.settings.rotate_interval_s = secs;
                    if secs % 60 != 0 {
                        self.error(name, "The value must be whole minutes");
                    }
                }
            }
            "rotateSize" if text == "0" => self.settings.rotate_bytes = *SIZES.end(),
            "rotateSize" => {
                if let Some(bytes) = self.number(name, text, &SIZES) {
                    self.settings.rotate_bytes = bytes;
                }
            }
            "disabled" => self.disabled(text),
            "disabledUsers" => self.users(text),
            "pruneAge" => {
                if let Some(minutes) = self.number(name, text, &PRUNE_MINUTES) {
                    self.settings.prune_age_s = minutes * 60;
                }
            }
            "logPath" if text == self.log_path => {}
            "logPath" => self.error(name, "The audit log is in the data directory of each node"),
            _ => self.error(name, "Unsupported key"),
        }
    }

    fn disabled(&mut self, text: &str) {
        let mut ids = BTreeSet::new();
        for text in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let kind = text.parse().ok().and_then(EventKind::with_id);
            match kind.map(EventKind::descriptor) {
                Some(found) if found.filterable => {
                    ids.insert(found.id);
                }
                Some(_) => {
                    let why = format!("The event {text} is always recorded");
                    return self.error("disabled", why);
                }
                None => return self.error("disabled", format!("There is no event {text}")),
            }
        }
        self.settings.disabled = ids;
    }

    fn users(&mut self, text: &str) {
        let mut users = BTreeSet::new();
        for text in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let user = text.rsplit_once('/').filter(|(name, domain)| {
                kedge_auth::is_user_name(name) && DOMAINS.contains(domain)
            });
            let Some((name, domain)) = user else {
                let why = format!("{text} is not of the form NAME/local or NAME/external");
                return self.error("disabledUsers", why);
            };
            users.insert(AuditUser {
                name: name.to_owned(),
                domain: domain.to_owned(),
            });
        }
        if users.len() > USERS_MAX {
            let why = format!("There can be at most {USERS_MAX} users");
            return self.error("disabledUsers", why);
        }
        self.settings.disabled_users = users;
    }
}

/// Returns the changed settings, or the errors of the form's fields.
fn parse(
    form: &FormFields,
    settings: AuditSettings,
    log_path: &str,
) -> Result<AuditSettings, Map<String, Value>> {
    let mut change = Change {
        settings,
        log_path,
        errors: Map::new(),
    };
    for (name, text) in form.fields() {
        change.field(name, text);
    }
    match change.errors.is_empty() {
        true => Ok(change.settings),
        false => Err(change.errors),
    }
}

/// `GET /settings/audit`.
pub(crate) async fn get(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    ok(&document(&call, &settings(&call)?))
}

/// `POST /settings/audit`: the fields that are given change.
pub(crate) async fn set(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let before = settings(&call)?;
    let log_path = call.state.parts.data_dir.display().to_string();
    let wanted = parse(&form, before.clone(), &log_path).map_err(|errors| {
        EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ "errors": errors }))
    })?;
    if wanted == before {
        return done();
    }
    // Before the log is turned off, which would hide who has done it.
    record(&call, &wanted);
    let turns_on = wanted.enabled && !before.enabled;
    let recorded = wanted.clone();
    call.blocking(move |state| {
        state.parts.users.change(|store| {
            store.set_audit_settings(wanted.clone());
            Ok(())
        })
    })
    .await?
    .map_err(|error| refusal(&error))?;
    if turns_on {
        record(&call, &recorded);
    }
    done()
}

fn record(call: &RequestContext, settings: &AuditSettings) {
    let parameters = document(call, settings);
    call.state.parts.users.audit().put(&AuditEvent {
        peer: Some(call.connection.peer),
        local: Some(call.connection.local),
        session: call.caller.session.as_deref().unwrap_or_default(),
        request: "POST /settings/audit",
        parameters: parameters.as_object(),
        ..AuditEvent::new(EventKind::AuditSettingsChanged, &call.caller.id)
    });
}

fn list(filterable: bool) -> Vec<EventDescriptor> {
    let all = EventKind::ALL.iter().map(|kind| kind.descriptor());
    all.filter(|it| it.filterable == filterable).collect()
}

/// `GET /settings/audit/descriptors`: the events that can be left out.
pub(crate) async fn descriptors(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    ok(&list(true))
}

/// `GET /settings/audit/nonFilterableDescriptors`: the events that are always recorded.
pub(crate) async fn other_descriptors(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    ok(&list(false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> AuditSettings {
        AuditSettings {
            enabled: false,
            rotate_interval_s: 86_400,
            rotate_bytes: 20 << 20,
            prune_age_s: 0,
            disabled: BTreeSet::new(),
            disabled_users: BTreeSet::new(),
        }
    }

    fn read(form: &str) -> Result<AuditSettings, Map<String, Value>> {
        parse(&FormFields::parse(form.as_bytes()), base(), "/data")
    }

    #[test]
    fn form_changes_the_given_fields() {
        assert_eq!(read(""), Ok(base()));
        let form = "auditdEnabled=true&rotateInterval=900&rotateSize=0&pruneAge=60&logPath=/data\
                    &disabled=20480,20485&disabledUsers=ada/local,bob/external";
        let user = |name: &str, domain: &str| AuditUser {
            name: name.to_owned(),
            domain: domain.to_owned(),
        };
        let expected = AuditSettings {
            enabled: true,
            rotate_interval_s: 900,
            rotate_bytes: 500 << 20,
            prune_age_s: 3_600,
            disabled: [20_480, 20_485].into(),
            disabled_users: [user("ada", "local"), user("bob", "external")].into(),
        };
        assert_eq!(read(form), Ok(expected));
    }

    #[test]
    fn errors_of_a_form_name_the_field() {
        for (form, field) in [
            ("auditdEnabled=1", "auditdEnabled"),
            ("rotateInterval=899", "rotateInterval"),
            ("rotateInterval=901", "rotateInterval"),
            ("rotateInterval=604801", "rotateInterval"),
            ("rotateSize=1", "rotateSize"),
            ("rotateSize=600000000", "rotateSize"),
            ("disabled=1", "disabled"),
            // Always recorded.
            ("disabled=20480,20481", "disabled"),
            ("disabledUsers=ada", "disabledUsers"),
            ("disabledUsers=ada/elsewhere", "disabledUsers"),
            ("disabledUsers=/local", "disabledUsers"),
            ("pruneAge=-1", "pruneAge"),
            ("pruneAge=35791395", "pruneAge"),
            ("logPath=/elsewhere", "logPath"),
            ("other=1", "other"),
        ] {
            let errors = read(form).expect_err(form);
            assert_eq!(errors.keys().collect::<Vec<_>>(), [field], "{form}");
        }
    }
}
