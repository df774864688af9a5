//! Credentials of the machine: from the metadata service of an EC2 instance (version 2), and from the agent of a container.

use std::time::Duration;

use zeroize::Zeroizing;

use super::credentials::{Access, Credentials};
use crate::http::{Reply, Request, Url};
use crate::service::ServiceError;

const INSTANCE: &str = "http://169.254.169.254";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
/// The agent of ECS.
const CONTAINER: &str = "http://169.254.170.2";
/// Hosts that may be asked without TLS, beside this machine: the agents of ECS and EKS.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
/// The timeout of a request. The services are on the machine or beside it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Gets the credentials of the role of the instance.
pub(super) fn of_instance(access: &Access<'_>) -> Result<Credentials, ServiceError> {
    let endpoint = access.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let endpoint = endpoint.unwrap_or_else(|| INSTANCE.to_owned());
    let url = Url::read(&endpoint)
        .ok_or_else(|| ServiceError::refused("AWS_EC2_METADATA_SERVICE_ENDPOINT is no URL"))?;
    let send = |method, path: &str, headers: &[(&str, &str)]| {
        let request = Request {
            method,
            url: &url.with_path(path),
            headers,
            body: b"",
        };
        let reply = request.send(Some(access.tls), TIMEOUT)?;
        success(reply, path)
    };
    let lifetime = [("X-aws-ec2-metadata-token-ttl-seconds", "60")];
    let token = Zeroizing::new(line(&send("PUT", "/latest/api/token", &lifetime)?)?.to_owned());
    let token = [("X-aws-ec2-metadata-token", token.as_str())];
    let roles = send("GET", ROLES, &token)?;
    let role = line(&roles)?;
    let document = send("GET", &format!("{ROLES}{role}"), &token)?;
    Credentials::of_document(&document)
}

/// Gets the credentials of the container, if it has an agent.
pub(super) fn of_container(access: &Access<'_>) -> Result<Option<Credentials>, ServiceError> {
    let relative = access.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let url = match relative.map(|path| format!("{CONTAINER}{path}")) {
        Some(url) => Some(url),
        None => access.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    };
    let Some(url) = url else { return Ok(None) };
    let url = Url::read(&url)
        .filter(|url| url.is_tls || url.is_loopback() || AGENTS.contains(&url.host.as_str()));
    let url = url.ok_or_else(|| {
        ServiceError::refused(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor the agent of a container",
        )
    })?;
    let token = match access.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(path) => Some(access.environment.read(&path)?),
        None => access
            .variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")
            .map(Zeroizing::new),
    };
    let mut headers = Vec::new();
    if let Some(token) = &token {
        headers.push(("Authorization", header_value(token.trim())?));
    }
    let request = Request {
        method: "GET",
        url: &url,
        headers: &headers,
        body: b"",
    };
    let reply = request.send(Some(access.tls), TIMEOUT)?;
    let document = success(reply, "the agent of the container")?;
    Credentials::of_document(&document).map(Some)
}

fn success(reply: Reply, what: &str) -> Result<Zeroizing<Vec<u8>>, ServiceError> {
    match reply.code {
        200 => Ok(reply.body),
        500.. => Err(ServiceError::unavailable(format!(
            "{what}: status {}",
            reply.code
        ))),
        code => Err(ServiceError::refused(format!("{what}: status {code}"))),
    }
}

/// Returns the first line, which is in a header or a path afterwards.
fn line(body: &[u8]) -> Result<&str, ServiceError> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    header_value(text.lines().next().unwrap_or_default().trim())
}

fn header_value(text: &str) -> Result<&str, ServiceError> {
    let is_odd = text.is_empty() || text.contains(|c: char| !c.is_ascii_graphic() && c != ' ');
    match is_odd {
        true => Err(ServiceError::refused("the metadata is malformed")),
        false => Ok(text),
    }
}
