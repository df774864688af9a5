//! Protection against requests of foreign web pages: the names of this server, and the allowed origins.
//!
//! Any page in a browser that reaches management can make it send requests there. A page whose name was redirected to
//! this server's address (DNS rebinding) could read the replies too. Both cases show in headers that a page cannot
//! choose: `Host` has a name that is not the server's, or `Origin` is not the server (RFC 6454 section 7). Browsers send `Origin` with
//! changes only, and over HTTPS they say more: `Sec-Fetch-Site` (W3C, Fetch Metadata). Clients other than browsers send neither, and
//! may leave out `Host`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use kedge_cluster::NodeList;

use super::reply::EarlyReply;
use super::state::HttpState;

/// The names of the server, in addition to addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Creates the list of names; one that begins with `.` stands for all names with that end, and `*` for any.
    #[must_use]
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let names = names.into_iter();
        Self(names.map(|name| name.to_ascii_lowercase()).collect())
    }

    /// Returns whether the name is allowed.
    fn allow(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if bare.unwrap_or(&host).parse::<IpAddr>().is_ok() || host == "localhost" {
            return true;
        }
        self.0.iter().any(|name| {
            let is_below = name.starts_with('.') && host.ends_with(name.as_str());
            name == "*" || *name == host || is_below
        })
    }
}

/// Splits `HOST`, `HOST:PORT` or `[ADDRESS]:PORT` into host and port; `None` for any other form.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let end = match authority.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(end);
    let port = match rest.strip_prefix(':') {
        Some(port) if is_port(port) => Some(port),
        None if rest.is_empty() => None,
        _ => return None,
    };
    (!host.is_empty()).then_some((host, port))
}

/// The reason why a request is refused.
#[derive(Debug, PartialEq, Eq)]
enum HostRefusal {
    Host(String),
    Origin(String),
    Site(String),
}

/// The header in which browsers say whose page has caused a request.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The header in which browsers say what a request is for.
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Checks that no page of another site has caused a request, as far as the browser says so. Another site may have a link.
fn check_site(method: &Method, headers: &HeaderMap) -> Result<(), HostRefusal> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    let mut modes = headers.get_all(MODE).iter();
    let is_link = is_read && modes.any(|mode| mode == "navigate");
    for site in headers.get_all(SITE) {
        let is_own = site == "same-origin" || site == "none";
        if !is_own && !is_link {
            let site = String::from_utf8_lossy(site.as_bytes());
            return Err(HostRefusal::Site(site.into_owned()));
        }
    }
    Ok(())
}

/// Checks the host and the origin of a request.
fn check(headers: &HeaderMap, allowed: &AllowedHosts, nodes: &NodeList) -> Result<(), HostRefusal> {
    let text = |value: &header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let mut host = None;
    for value in headers.get_all(header::HOST) {
        let value = text(value);
        let is_allowed =
            split(&value).is_some_and(|(name, _)| allowed.allow(name) || is_node(nodes, name));
        if !is_allowed || host.is_some() {
            return Err(HostRefusal::Host(value));
        }
        host = Some(value);
    }
    for value in headers.get_all(header::ORIGIN) {
        let value = text(value);
        let is_own = host.as_deref().is_some_and(|host| is_same(&value, host));
        if !is_own {
            return Err(HostRefusal::Origin(value));
        }
    }
    Ok(())
}

/// Returns whether a node of the cluster is called so, in either network.
fn is_node(nodes: &NodeList, name: &str) -> bool {
    nodes.list.iter().any(|node| {
        let external = node.external.as_ref().map(|external| &external.host);
        let mut hosts = node.host.iter().chain(external);
        hosts.any(|host| host.eq_ignore_ascii_case(name.trim_end_matches('.')))
    })
}

/// Returns whether an origin is the server that the host names.
fn is_same(origin: &str, host: &str) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let default = match scheme {
        "http" => "80",
        "https" => "443",
        _ => return false,
    };
    match (split(authority), split(host)) {
        (Some((theirs, their_port)), Some((ours, our_port))) => {
            theirs.eq_ignore_ascii_case(ours)
                && their_port.unwrap_or(default) == our_port.unwrap_or(default)
        }
        _ => false,
    }
}

/// Passes an allowed request on, or replies 403.
pub(super) async fn guard(
    State(state): State<Arc<HttpState>>,
    request: Request,
    next: Next,
) -> Response {
    let cluster = state.parts.cluster.snapshot();
    let checked = check(request.headers(), &state.parts.hosts, cluster.nodes());
    let checked = checked.and_then(|()| check_site(request.method(), request.headers()));
    let refused = match checked {
        Ok(()) => return next.run(request).await,
        Err(refused) => refused,
    };
    let text = match &refused {
        HostRefusal::Host(host) => format!(
            "This server is not called {host:?}. Use its address, or give the name in the setting http_allowed_hosts."
        ),
        HostRefusal::Origin(origin) => format!("Pages of {origin:?} may not use this server."),
        HostRefusal::Site(site) => {
            format!("Pages of other sites may not use this server, and this request is {site:?}.")
        }
    };
    tracing::warn!(
        ?refused,
        "management: refused a request of a browser, or under a wrong name"
    );
    EarlyReply::text(StatusCode::FORBIDDEN, text).into_response()
}

#[cfg(test)]
mod tests {
    use kedge_cluster::{ClusterState, External, Ports};

    use super::*;

    #[test]
    fn host_names_and_ports_are_split() {
        for (authority, expected) in [
            ("h", Some(("h", None))),
            ("h:80", Some(("h", Some("80")))),
            ("[::1]", Some(("[::1]", None))),
            ("[::1]:8091", Some(("[::1]", Some("8091")))),
            ("", None),
            (":80", None),
            ("h:", None),
            ("h:8o", None),
            ("[::1", None),
            ("[::1]x", None),
            ("a@h:80:1", None),
        ] {
            assert_eq!(split(authority), expected, "{authority:?}");
        }
    }

    #[test]
    fn hosts_and_origins() {
        let allowed = AllowedHosts::new(["Db1.example.com".to_owned(), ".svc.local".to_owned()]);
        let ports = Ports::plain(1, 2);
        let mut nodes = NodeList::alone(&ClusterState::new([0; 32]), ports);
        nodes.list[0].host = Some("Db2.example.com".to_owned());
        nodes.list[0].external = Some(External {
            host: "db2.outside.example".to_owned(),
            kv_port: None,
            mgmt_port: None,
        });
        let host = |it: &str| Err(HostRefusal::Host(it.to_owned()));
        let origin = |it: &str| Err(HostRefusal::Origin(it.to_owned()));
        // (headers, expected result)
        type Given<'g> = &'g [(&'g str, &'g str)];
        let cases: [(Given<'_>, Result<(), HostRefusal>); 23] = [
            (&[], Ok(())),
            (&[("host", "127.0.0.1:8091")], Ok(())),
            (&[("host", "10.1.2.3")], Ok(())),
            (&[("host", "[2001:db8::1]:8091")], Ok(())),
            (&[("host", "LocalHost:1")], Ok(())),
            (&[("host", "db1.EXAMPLE.com.:1")], Ok(())),
            (&[("host", "kedge-0.kedge.svc.local:1")], Ok(())),
            (&[("host", "db2.example.com.:8091")], Ok(())),
            (&[("host", "db2.outside.example")], Ok(())),
            (&[("host", "evil.com")], host("evil.com")),
            (
                &[("host", "localhost.evil.com")],
                host("localhost.evil.com"),
            ),
            (
                &[("host", "127.0.0.1.evil.com:1")],
                host("127.0.0.1.evil.com:1"),
            ),
            (&[("host", "xdb1.example.com")], host("xdb1.example.com")),
            (&[("host", "svc.local")], host("svc.local")),
            (&[("host", "")], host("")),
            (&[("host", "h"), ("host", "127.0.0.1")], host("h")),
            (
                &[("host", "127.0.0.1"), ("host", "127.0.0.1")],
                host("127.0.0.1"),
            ),
            (
                &[
                    ("host", "localhost:8091"),
                    ("origin", "http://LOCALHOST:8091"),
                ],
                Ok(()),
            ),
            (
                &[("host", "localhost"), ("origin", "http://localhost:80")],
                Ok(()),
            ),
            (
                &[
                    ("host", "localhost:8091"),
                    ("origin", "http://localhost:3000"),
                ],
                origin("http://localhost:3000"),
            ),
            (
                &[("host", "127.0.0.1:8091"), ("origin", "https://evil.com")],
                origin("https://evil.com"),
            ),
            (
                &[("host", "127.0.0.1:8091"), ("origin", "null")],
                origin("null"),
            ),
            (
                &[("origin", "http://127.0.0.1")],
                origin("http://127.0.0.1"),
            ),
        ];
        for (given, expected) in cases {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(check(&headers, &allowed, &nodes), expected, "{given:?}");
        }
        let any = AllowedHosts::new(["*".to_owned()]);
        assert!(any.allow("whatever.example"));
    }

    #[test]
    fn requests_that_other_sites_cause() {
        const READ: Method = Method::GET;
        const CHANGE: Method = Method::POST;
        for (method, site, mode, is_allowed) in [
            (READ, None, None, true),
            (CHANGE, None, Some("navigate"), true),
            (CHANGE, Some("same-origin"), Some("cors"), true),
            (CHANGE, Some("none"), None, true),
            (READ, Some("cross-site"), Some("navigate"), true),
            (Method::HEAD, Some("same-site"), Some("navigate"), true),
            (READ, Some("cross-site"), Some("no-cors"), false),
            (READ, Some("cross-site"), None, false),
            (READ, Some("same-site"), Some("cors"), false),
            (CHANGE, Some("cross-site"), Some("navigate"), false),
            (CHANGE, Some("same-site"), Some("same-origin"), false),
            (CHANGE, Some("something new"), None, false),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [(SITE, site), (MODE, mode)] {
                if let Some(value) = value {
                    headers.append(name, value.parse().unwrap());
                }
            }
            let expected = match (is_allowed, site) {
                (false, Some(site)) => Err(HostRefusal::Site(site.to_owned())),
                _ => Ok(()),
            };
            let found = check_site(&method, &headers);
            assert_eq!(found, expected, "{method} {site:?} {mode:?}");
        }
    }
}
