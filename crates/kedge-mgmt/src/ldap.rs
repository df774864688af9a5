//! The directory of external users: `/settings/ldap`, as in the original. The users of a cluster have one.
//!
//! Invariant: no reply contains the password with which the server binds.

use axum::extract::Path;
use axum::http::StatusCode;
use kedge_auth::{LdapEncryption, LdapSettings, Privilege, UserDnMapping};
use kedge_node::external::LdapTrial;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::form::FormFields;
use super::reply::{EarlyReply, Handled, done, ok};
use super::request_context::RequestContext;
use super::users::refusal;

/// The text in place of a password. A form that sends it back keeps the password.
const MASK: &str = "**********";

/// The limits of numbers: the smallest and the largest.
const PORTS: (u32, u32) = (1, 65_535);
const DEPTHS: (u32, u32) = (1, 100);
const CONNECTIONS: (u32, u32) = (1, 1_000);
const CACHED: (u32, u32) = (0, 100_000);
const LIFETIMES_MS: (u32, u32) = (0, 86_400_000);
const TIMEOUTS_MS: (u32, u32) = (100, 60_000);

fn document(settings: &LdapSettings) -> Value {
    let mut document = serde_json::to_value(settings).expect("settings are text and numbers");
    let is_set = !settings.bind_pass.is_empty();
    document["bindPass"] = if is_set { MASK } else { "" }.into();
    document
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err("The value must be one of the following: [true,false]".to_owned()),
    }
}

fn number<N: TryFrom<u32>>(text: &str, (min, max): (u32, u32)) -> Result<N, String> {
    let wrong = || format!("The value must be an integer in range from {min} to {max}");
    let number = text.parse::<u32>().map_err(|_| wrong())?;
    let number = Some(number).filter(|number| (min..=max).contains(number));
    let number = number.and_then(|number| N::try_from(number).ok());
    number.ok_or_else(wrong)
}

/// Returns the hosts of a list, which is JSON or has commas.
fn hosts(text: &str) -> Result<Vec<String>, String> {
    let hosts: Vec<String> = match serde_json::from_str(text) {
        Ok(hosts) => hosts,
        Err(_) if text.starts_with('[') => return Err("The value must be a list".to_owned()),
        Err(_) => text.split(',').map(|host| host.trim().to_owned()).collect(),
    };
    let hosts: Vec<String> = hosts.into_iter().filter(|host| !host.is_empty()).collect();
    let is_bad = |host: &String| host.contains(|c: char| c.is_whitespace() || "/?#@[]".contains(c));
    match hosts.iter().find(|host| is_bad(host)) {
        Some(bad) => Err(format!("{bad:?} is no name or address of a host")),
        None => Ok(hosts),
    }
}

fn mapping(text: &str) -> Result<Option<UserDnMapping>, String> {
    if text.is_empty() || text == "None" {
        return Ok(None);
    }
    let parsed = serde_json::from_str(text);
    let wrong = |_| r#"The value must be {"template":"..."} or {"query":"..."}"#.to_owned();
    parsed.map(Some).map_err(wrong)
}

fn encryption(text: &str) -> Result<LdapEncryption, String> {
    let parsed = serde_json::from_value(text.into());
    parsed.map_err(|_| {
        "The value must be one of the following: [None,StartTLSExtension,TLS]".to_owned()
    })
}

/// Returns a password without the end of the line that a file has after it.
fn of_file(password: &str) -> &str {
    password.trim_end_matches(['\r', '\n'])
}

/// Sets a field; `raw` is its text with blanks. Returns false if there is no such field.
fn set_field(
    settings: &mut LdapSettings,
    name: &str,
    (text, raw): (&str, &str),
) -> Result<bool, String> {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    match name {
        "authenticationEnabled" => settings.authentication_enabled = switch(text)?,
        "authorizationEnabled" => settings.authorization_enabled = switch(text)?,
        "hosts" => settings.hosts = hosts(text)?,
        "port" => settings.port = number(text, PORTS)?,
        "encryption" => settings.encryption = encryption(text)?,
        "serverCertValidation" => settings.server_cert_validation = switch(text)?,
        "cacert" => settings.cacert = some(text),
        "bindDN" => settings.bind_dn = text.to_owned(),
        "bindPass" if raw == MASK => {}
        "bindPass" => settings.bind_pass = Zeroizing::new(of_file(raw).to_owned()),
        "userDNMapping" => settings.user_dn_mapping = mapping(text)?,
        "groupsQuery" => settings.groups_query = some(text),
        "nestedGroupsEnabled" => settings.nested_groups_enabled = switch(text)?,
        "nestedGroupsMaxDepth" => settings.nested_groups_max_depth = number(text, DEPTHS)?,
        "maxParallelConnections" => settings.max_parallel_connections = number(text, CONNECTIONS)?,
        "maxCacheSize" => settings.max_cache_size = number(text, CACHED)?,
        "cacheValueLifetime" => settings.cache_value_lifetime = number(text, LIFETIMES_MS)?,
        "requestTimeout" => settings.request_timeout = number(text, TIMEOUTS_MS)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Returns the settings after a form, or the errors of its fields. `others` are the fields that are none of the settings.
fn parse(
    before: &LdapSettings,
    form: &FormFields,
    others: &[&str],
) -> Result<LdapSettings, Map<String, Value>> {
    let mut settings = before.clone();
    let mut errors = Map::new();
    let fields = form.fields().filter(|(name, _)| !others.contains(name));
    for (name, text) in fields {
        let raw = form.raw(name).unwrap_or_default();
        let problem = match set_field(&mut settings, name, (text, raw)) {
            Ok(true) => continue,
            Ok(false) => "Unsupported key".to_owned(),
            Err(problem) => problem,
        };
        errors.insert(name.to_owned(), problem.into());
    }
    if errors.is_empty()
        && let Err(problem) = settings.check()
    {
        errors.insert(problem.field.to_owned(), problem.text.into());
    }
    if errors.is_empty() {
        Ok(settings)
    } else {
        Err(errors)
    }
}

fn current(call: &RequestContext) -> LdapSettings {
    let users = call.state.parts.users.read();
    users
        .ldap()
        .map(|it| LdapSettings::clone(it))
        .unwrap_or_default()
}

fn parsed(
    call: &RequestContext,
    form: &FormFields,
    others: &[&str],
) -> Result<LdapSettings, EarlyReply> {
    let wrong = |errors| EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ "errors": errors }));
    parse(&current(call), form, others).map_err(wrong)
}

/// `GET /settings/ldap`.
pub(crate) async fn get(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    ok(&document(&current(&call)))
}

async fn store(call: &RequestContext, settings: Option<LdapSettings>) -> Result<(), EarlyReply> {
    call.blocking(move |state| {
        state.parts.users.change(|store| {
            store.set_ldap(settings.clone());
            Ok(())
        })
    })
    .await?
    .map_err(|error| refusal(&error))
}

/// `POST /settings/ldap`: changes the given fields, and flushes the remembered logins.
pub(crate) async fn set(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let settings = parsed(&call, &form, &[])?;
    let is_plain = settings.encryption == LdapEncryption::None;
    if settings.authentication_enabled && is_plain {
        tracing::warn!("passwords of external users are sent to the directory without encryption");
    }
    store(&call, Some(settings.clone())).await?;
    ok(&document(&settings))
}

/// `DELETE /settings/ldap`: all fields get their defaults.
pub(crate) async fn remove(call: RequestContext) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    store(&call, None).await?;
    done()
}

/// The fields of a trial that are none of the settings.
const AUTH_USER: &str = "authUser";
const AUTH_PASS: &str = "authPass";
const GROUPS_USER: &str = "groupsQueryUser";

/// Returns the trial that a path names.
fn trial(what: &str, form: &FormFields) -> Result<LdapTrial, EarlyReply> {
    let user = |field: &str| match form.get(field) {
        Some(user) if !user.is_empty() => Ok(user.to_owned()),
        _ => Err(EarlyReply::field_error(
            StatusCode::BAD_REQUEST,
            field,
            "The value must be supplied",
        )),
    };
    Ok(match what {
        "connectivity" => LdapTrial::Connectivity,
        "authentication" => LdapTrial::Authentication {
            user: user(AUTH_USER)?,
            password: {
                let password = form.raw(AUTH_PASS).map(of_file).unwrap_or_default();
                Zeroizing::new(password.as_bytes().to_vec())
            },
        },
        "groupsQuery" => LdapTrial::Groups {
            user: user(GROUPS_USER)?,
        },
        _ => return Err(EarlyReply::text(StatusCode::NOT_FOUND, "Not found.")),
    })
}

/// `POST /settings/ldap/validate/{connectivity,authentication,groupsQuery}`: tries the settings with the given fields in place of the stored
/// ones.
pub(crate) async fn validate(
    call: RequestContext,
    Path(what): Path<String>,
    form: FormFields,
) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let trial = trial(&what, &form)?;
    let is_groups = matches!(trial, LdapTrial::Groups { .. });
    let settings = parsed(&call, &form, &[AUTH_USER, AUTH_PASS, GROUPS_USER])?;
    let Some(authority) = call.state.checks.external() else {
        let reason = "this node asks no directory";
        return ok(&json!({ "result": "error", "reason": reason }));
    };
    let (tell, told) = oneshot::channel();
    let done = |outcome| drop(tell.send(outcome));
    authority.try_settings(settings, trial, Box::new(done));
    let stopped = |_| Err("the server stops".to_owned());
    ok(&match told.await.unwrap_or_else(stopped) {
        Ok(groups) if is_groups => json!({ "result": "success", "groups": groups }),
        Ok(_) => json!({ "result": "success" }),
        Err(reason) => json!({ "result": "error", "reason": reason }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(before: &LdapSettings, text: &str) -> Result<LdapSettings, Vec<String>> {
        let parsed = parse(before, &FormFields::parse(text.as_bytes()), &["authUser"]);
        parsed.map_err(|errors| errors.keys().cloned().collect())
    }

    #[test]
    fn form_changes_given_fields_and_keeps_a_masked_password() {
        let form = "hosts=a.example.org,127.0.0.1&port=636&encryption=TLS&bindDN=cn%3Dkedge&bindPass=%20hush%0A\
                    &userDNMapping=%7B%22template%22%3A%22uid%3D%25u%2Cdc%3Dorg%22%7D&authenticationEnabled=true";
        let settings = read(&LdapSettings::default(), form).unwrap();
        assert_eq!(settings.hosts, ["a.example.org", "127.0.0.1"]);
        assert_eq!(
            (settings.port, settings.encryption),
            (636, LdapEncryption::TLS)
        );
        assert_eq!(settings.bind_pass.as_str(), " hush");
        let template = UserDnMapping::Template("uid=%u,dc=org".to_owned());
        assert_eq!(settings.user_dn_mapping, Some(template));
        let shown = document(&settings);
        assert_eq!(shown["bindPass"], MASK);
        assert!(!shown.to_string().contains("hush"));
        let again = read(
            &settings,
            &format!("bindPass={MASK}&authUser=x&hosts=[%22b%22]"),
        )
        .unwrap();
        assert_eq!(
            (again.bind_pass.as_str(), again.hosts),
            (" hush", vec!["b".to_owned()])
        );
        assert_eq!(document(&LdapSettings::default())["bindPass"], "");
    }

    #[test]
    fn wrong_fields_are_named() {
        for (form, wrong) in [
            ("authenticationEnabled=yes", "authenticationEnabled"),
            ("authenticationEnabled=true", "hosts"),
            ("hosts=a/b", "hosts"),
            ("hosts=[1]", "hosts"),
            ("port=0", "port"),
            ("port=65536", "port"),
            ("encryption=SSL", "encryption"),
            ("userDNMapping=uid", "userDNMapping"),
            (
                "userDNMapping=%7B%22template%22%3A%22uid%3Dx%22%7D",
                "userDNMapping",
            ),
            ("groupsQuery=dc%3Dorg%3F%3Fall", "groupsQuery"),
            ("requestTimeout=99", "requestTimeout"),
            ("maxParallelConnections=0", "maxParallelConnections"),
            ("other=1", "other"),
        ] {
            let errors = read(&LdapSettings::default(), form).expect_err(form);
            assert_eq!(errors, [wrong], "{form}");
        }
    }
}
