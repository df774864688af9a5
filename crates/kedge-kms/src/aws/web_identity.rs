//! Credentials for a token of a web identity, as pods of Kubernetes have one: AssumeRoleWithWebIdentity of AWS STS.

use zeroize::Zeroizing;

use super::credentials::{Access, Credentials};
use super::source::{default_endpoint, endpoint_url};
use crate::http::Request;
use crate::service::ServiceError;

/// Gets the credentials of the role, if the environment names a token.
pub(super) fn of_token(access: &Access<'_>) -> Result<Option<Credentials>, ServiceError> {
    let (Some(file), Some(role)) = (
        access.variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
        access.variable("AWS_ROLE_ARN"),
    ) else {
        return Ok(None);
    };
    let token = access.environment.read(&file)?;
    let session = access.variable("AWS_ROLE_SESSION_NAME");
    let session = session.unwrap_or_else(|| "kedge".to_owned());
    let form = form_urlencoded::Serializer::new(String::new())
        .append_pair("Action", "AssumeRoleWithWebIdentity")
        .append_pair("Version", "2011-06-15")
        .append_pair("RoleArn", &role)
        .append_pair("RoleSessionName", &session)
        .append_pair("WebIdentityToken", token.trim())
        .finish();
    let form = Zeroizing::new(form);
    let endpoint = access.environment.endpoint("STS");
    let endpoint = endpoint.unwrap_or_else(|| default_endpoint("sts", access.region));
    let url = endpoint_url(&endpoint).map_err(ServiceError::Refused)?;
    let request = Request {
        method: "POST",
        url: &url,
        headers: &[("Content-Type", "application/x-www-form-urlencoded")],
        body: form.as_bytes(),
    };
    let reply = request.send(Some(access.tls), access.source.timeout())?;
    let text = std::str::from_utf8(&reply.body).unwrap_or_default();
    if reply.code != 200 {
        let why = element(text, "Message").unwrap_or("no message");
        let why = format!("AssumeRoleWithWebIdentity: status {}: {why}", reply.code);
        return Err(match reply.code {
            500.. | 429 => ServiceError::Unavailable(why),
            _ => ServiceError::Refused(why),
        });
    }
    of_text(text).map(Some)
}

fn of_text(text: &str) -> Result<Credentials, ServiceError> {
    let part = |name| {
        let found = element(text, name);
        found.ok_or_else(|| ServiceError::refused("AWS STS returned no credentials"))
    };
    let secret = |name| part(name).map(|text: &str| Zeroizing::new(text.to_owned()));
    Credentials::new(
        part("AccessKeyId")?.to_owned(),
        secret("SecretAccessKey")?,
        Some(secret("SessionToken")?),
    )
}

/// Returns the text of an element without parts. Credentials have no characters that XML escapes.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (content, _) = rest.split_once(&format!("</{name}>"))?;
    Some(content.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_a_reply() {
        let text = "<R><Credentials><SessionToken>t+/=</SessionToken><SecretAccessKey>s</SecretAccessKey>\
                    <Expiration>2030</Expiration><AccessKeyId>ASIA</AccessKeyId></Credentials></R>";
        let found = of_text(text).expect("credentials");
        assert_eq!((found.id.as_str(), found.secret.as_str()), ("ASIA", "s"));
        assert_eq!(found.token.as_ref().map(|it| it.as_str()), Some("t+/="));
        for cut in ["", "<AccessKeyId>A</AccessKeyId>", &text[..40]] {
            assert!(of_text(cut).is_err(), "{cut}");
        }
    }
}
