//! The policy of passwords: `GET` and `POST /settings/passwordPolicy`, as in the original. The users of a cluster have one.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use kedge_auth::{CharacterClass, PASSWORD_LENGTH_MIN_MAX, PasswordPolicy, Privilege};
use serde_json::{Map, Value, json};

use super::form::FormFields;
use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;
use super::users::refusal;

const LENGTH_MIN: &str = "minLength";

fn field(class: CharacterClass) -> &'static str {
    match class {
        CharacterClass::Uppercase => "enforceUppercase",
        CharacterClass::Lowercase => "enforceLowercase",
        CharacterClass::Digits => "enforceDigits",
        CharacterClass::SpecialChars => "enforceSpecialChars",
    }
}

fn document(policy: &PasswordPolicy) -> Handled {
    let mut document = json!({ LENGTH_MIN: policy.length_min });
    for class in CharacterClass::ALL {
        document[field(class)] = policy.classes.contains(&class).into();
    }
    ok(&document)
}

/// Returns the policy of a form, or the errors of its fields. Absent classes are not enforced.
fn parse(form: &FormFields) -> Result<PasswordPolicy, Map<String, Value>> {
    let mut errors = Map::new();
    let mut length_min = None;
    let mut classes = BTreeSet::new();
    for (name, text) in form.fields() {
        let class = CharacterClass::ALL
            .into_iter()
            .find(|it| field(*it) == name);
        let why = match (name, class, text) {
            (LENGTH_MIN, ..) => match text.parse() {
                Ok(length) if length <= PASSWORD_LENGTH_MIN_MAX => {
                    length_min = Some(length);
                    continue;
                }
                _ => format!(
                    "The value must be an integer in range from 0 to {PASSWORD_LENGTH_MIN_MAX}"
                ),
            },
            (_, Some(class), "true") => {
                classes.insert(class);
                continue;
            }
            (_, Some(class), "false") => {
                classes.remove(&class);
                continue;
            }
            (_, Some(_), _) => "The value must be one of the following: [true,false]".to_owned(),
            (_, None, _) => "Unsupported key".to_owned(),
        };
        errors.insert(name.to_owned(), why.into());
    }
    if length_min.is_none() && !errors.contains_key(LENGTH_MIN) {
        errors.insert(LENGTH_MIN.to_owned(), "The value must be supplied".into());
    }
    match length_min {
        Some(length_min) if errors.is_empty() => Ok(PasswordPolicy {
            length_min,
            classes,
        }),
        _ => Err(errors),
    }
}

/// `GET`: the policy.
pub(crate) async fn get(call: RequestContext) -> Handled {
    call.caller.require(Privilege::InspectUsers, None)?;
    document(&call.state.parts.users.password_policy())
}

/// `POST` with `minLength` and the classes to enforce: the policy of passwords that are set from now on.
pub(crate) async fn set(call: RequestContext, form: FormFields) -> Handled {
    call.caller.require(Privilege::Admin, None)?;
    let policy = parse(&form).map_err(|errors| {
        EarlyReply::json(StatusCode::BAD_REQUEST, &json!({ "errors": errors }))
    })?;
    let wanted = policy.clone();
    call.blocking(move |state| {
        state.parts.users.change(|store| {
            store.set_password_policy(wanted.clone());
            Ok(())
        })
    })
    .await?
    .map_err(|error| refusal(&error))?;
    document(&policy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_has_a_length_and_classes() {
        let read = |text: &str| parse(&FormFields::parse(text.as_bytes()));
        let policy = read("minLength=8&enforceDigits=true&enforceUppercase=false");
        let expected = PasswordPolicy {
            length_min: 8,
            classes: [CharacterClass::Digits].into(),
        };
        assert_eq!(policy, Ok(expected));
        for (text, wrong) in [
            ("", "minLength"),
            ("minLength=101", "minLength"),
            ("minLength=-1", "minLength"),
            ("minLength=6&enforceDigits=1", "enforceDigits"),
            ("minLength=6&other=1", "other"),
        ] {
            let errors = read(text).expect_err(text);
            assert_eq!(errors.keys().collect::<Vec<_>>(), [wrong], "{text}");
        }
    }
}
