//! `/settings/autoFailover`: the settings of automatic failover, in the form of Couchbase Server's REST interface.

use axum::http::StatusCode;
use kedge_auth::Privilege;
use kedge_cluster::{
    AutoFailoverChange, AutoFailoverEdit, AutoFailoverSettings, DiskOptionChange, FieldError,
};
use serde_json::{Map, Value, json};

use super::cluster::refusal;
use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;

/// Returns the settings as a document; without a maximum count if there is none.
fn document(settings: &AutoFailoverSettings) -> Value {
    let mut document = serde_json::to_value(settings).expect("strings and numbers serialise");
    if let Some(fields) = document.as_object_mut() {
        fields.remove("version");
        if settings.disable_max_count {
            fields.remove("maxCount");
        }
    }
    document
}

/// Returns the document of a server that runs alone, where nothing can be failed over.
fn alone() -> Value {
    let mut settings = AutoFailoverSettings::default();
    settings.enabled = false;
    settings.failover_on_data_disk_issues.enabled = false;
    settings.failover_on_data_disk_non_responsiveness.enabled = false;
    document(&settings)
}

/// The fields of a form that are read so far, and their errors.
#[derive(Default)]
struct Reader {
    errors: Map<String, Value>,
}

impl Reader {
    fn flag(&mut self, field: &str, text: &str) -> Option<bool> {
        match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => self.wrong(field, "must be true or false"),
        }
    }

    fn number(&mut self, field: &str, text: &str) -> Option<u32> {
        match text.parse() {
            Ok(number) => Some(number),
            Err(_) => self.wrong(field, "must be an integer"),
        }
    }

    fn wrong<T>(&mut self, field: &str, text: &str) -> Option<T> {
        self.errors.insert(field.to_owned(), text.into());
        None
    }

    /// Reads a field of an option of the disk, such as `failoverOnDataDiskIssues[enabled]`.
    fn option(&mut self, field: &str, member: &str, text: &str, option: &mut DiskOptionChange) {
        match member {
            "[enabled]" => option.enabled = self.flag(field, text),
            "[timePeriod]" => option.time_period = self.number(field, text),
            _ => drop(self.wrong::<()>(field, "Unsupported key")),
        }
    }

    fn field(&mut self, field: &str, text: &str, change: &mut AutoFailoverChange) {
        if let Some(member) = field.strip_prefix("failoverOnDataDiskIssues") {
            return self.option(field, member, text, &mut change.data_disk_issues);
        }
        if let Some(member) = field.strip_prefix("failoverOnDataDiskNonResponsiveness") {
            let option = &mut change.data_disk_non_responsiveness;
            return self.option(field, member, text, option);
        }
        match field {
            "enabled" => change.enabled = self.flag(field, text),
            "timeout" => change.timeout = self.number(field, text),
            "maxCount" => change.max_count = self.number(field, text),
            "disableMaxCount" => change.disable_max_count = self.flag(field, text),
            "canAbortRebalance" => change.can_abort_rebalance = self.flag(field, text),
            "failoverPreserveDurabilityMajority" => {
                change.preserve_durability_majority = self.flag(field, text);
            }
            "allowFailoverEphemeralNoReplicas" => {
                change.allow_ephemeral_no_replicas = self.flag(field, text);
            }
            _ => drop(self.wrong::<()>(field, "Unsupported key")),
        }
    }
}

/// Returns the change of a form, or the errors of its fields.
fn change(form: &FormFields) -> Result<AutoFailoverChange, Map<String, Value>> {
    let mut reader = Reader::default();
    let mut change = AutoFailoverChange::default();
    for (field, text) in form.fields() {
        reader.field(field, text, &mut change);
    }
    // What is missing or out of range is named in the same reply.
    if let Err(errors) = change.apply(&AutoFailoverSettings::default()) {
        for FieldError { field, text } in errors {
            let entry = reader.errors.entry(field);
            entry.or_insert_with(|| text.into());
        }
    }
    match reader.errors.is_empty() {
        true => Ok(change),
        false => Err(reader.errors),
    }
}

fn bad(errors: &Map<String, Value>) -> EarlyReply {
    EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ "errors": errors }))
}

/// Makes an edit, and replies when the coordination store has it.
async fn edit(call: RequestContext, edit: AutoFailoverEdit) -> Handled {
    let node = call.node_for(Privilege::Settings)?;
    let made = call.blocking(move |_| node.edit_auto_failover(&edit));
    made.await?.map_err(|error| refusal(&error))?;
    done()
}

/// `GET /settings/autoFailover`.
pub(crate) async fn get(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Inspect, None)?;
    let Some(node) = call.state.parts.node.clone() else {
        return ok(&alone());
    };
    let settings = call.blocking(move |_| node.auto_failover()).await?;
    ok(&document(&settings.map_err(|error| refusal(&error))?))
}

/// `POST /settings/autoFailover`; with `just_validate=1` in the query, only the form is checked.
pub(crate) async fn set(call: RequestContext, form: FormFields) -> Handled {
    call.node_for(Privilege::Settings)?;
    let change = change(&form).map_err(|errors| bad(&errors))?;
    if call.query.get("just_validate") == Some("1") {
        return ok(&json!({ "errors": {} }));
    }
    edit(call, AutoFailoverEdit::Change(change)).await
}

/// `POST /settings/autoFailover/resetCount`.
pub(crate) async fn reset_count(call: RequestContext) -> Handled {
    edit(call, AutoFailoverEdit::ResetCount).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(form: &str) -> Result<AutoFailoverChange, Map<String, Value>> {
        change(&FormFields::parse(form.as_bytes()))
    }

    #[test]
    fn settings_have_the_names_of_the_rest_interface() {
        let mut settings = AutoFailoverSettings::default();
        let expected = json!({
            "enabled": true, "timeout": 5, "count": 0, "maxCount": 1, "disableMaxCount": false,
            "failoverOnDataDiskIssues": {"enabled": true, "timePeriod": 10},
            "failoverOnDataDiskNonResponsiveness": {"enabled": true, "timePeriod": 10},
            "canAbortRebalance": true, "failoverPreserveDurabilityMajority": false,
            "allowFailoverEphemeralNoReplicas": false,
        });
        assert_eq!(document(&settings), expected);
        settings.disable_max_count = true;
        assert_eq!(document(&settings).get("maxCount"), None);
        assert_eq!(alone()["enabled"], false);
        assert_eq!(alone()["failoverOnDataDiskIssues"]["enabled"], false);
    }

    #[test]
    fn form_of_the_vendors_command_line_is_read() {
        let form = "enabled=true&timeout=60&maxCount=3&canAbortRebalance=false\
                    &failoverOnDataDiskIssues%5Benabled%5D=true&failoverOnDataDiskIssues%5BtimePeriod%5D=30\
                    &failoverOnDataDiskNonResponsiveness[enabled]=false&disableMaxCount=false\
                    &failoverPreserveDurabilityMajority=true&allowFailoverEphemeralNoReplicas=true";
        let expected = AutoFailoverChange {
            enabled: Some(true),
            timeout: Some(60),
            max_count: Some(3),
            disable_max_count: Some(false),
            data_disk_issues: DiskOptionChange {
                enabled: Some(true),
                time_period: Some(30),
            },
            data_disk_non_responsiveness: DiskOptionChange {
                enabled: Some(false),
                time_period: None,
            },
            can_abort_rebalance: Some(false),
            preserve_durability_majority: Some(true),
            allow_ephemeral_no_replicas: Some(true),
        };
        assert_eq!(read(form), Ok(expected));
        let off = AutoFailoverChange {
            enabled: Some(false),
            ..AutoFailoverChange::default()
        };
        assert_eq!(read("enabled=false"), Ok(off));
    }

    #[test]
    fn each_wrong_field_of_a_form_has_its_error() {
        for (form, fields) in [
            ("", &["enabled"][..]),
            ("enabled=1", &["enabled"]),
            ("enabled=true", &["timeout"]),
            ("enabled=true&timeout=0", &["timeout"]),
            ("enabled=true&timeout=121", &["timeout"]),
            ("enabled=true&timeout=soon", &["timeout"]),
            (
                "enabled=true&timeout=5&maxCount=101&canAbortRebalance=yes",
                &["canAbortRebalance", "maxCount"],
            ),
            (
                "enabled=true&timeout=5&failoverOnDataDiskIssues[enabled]=true",
                &["failoverOnDataDiskIssues[timePeriod]"],
            ),
            (
                "enabled=true&timeout=5&failoverOnDataDiskIssues[timePeriod]=4",
                &["failoverOnDataDiskIssues[timePeriod]"],
            ),
            (
                "enabled=true&timeout=5&disableMaxCount=true&maxCount=2",
                &["maxCount"],
            ),
            ("enabled=false&color=red", &["color"]),
        ] {
            let errors = read(form).expect_err(form);
            let named: Vec<&str> = errors.keys().map(String::as_str).collect();
            assert_eq!(named, fields, "{form}");
        }
    }
}
