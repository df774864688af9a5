//! Sessions of the console over real sockets, and attacks on them.

use std::sync::Arc;

use kedge_auth::{ExternalGrants, GroupChange, LdapSettings, Privileges, external_id};
use kedge_node::external::{
    ExternalAuthority, ExternalLogin, ExternalRefusal, LdapTrial, LoginDone, PasswordAttempt,
    TokenAttempt, TrialDone,
};
use kedge_node::users::Users;

use super::client::{Client, Reply};
use super::{ConnectionTimeouts, Server, root};

/// The header of the console's own requests.
const CONSOLE: &str = "ns-server-ui: yes\r\n";

fn server() -> Server {
    let mut users = root();
    users.set_hash_cost(kedge_auth::HashCost::new(64, 1).unwrap());
    let roles = "ro_admin".parse().unwrap();
    users.add("ada", "lovelace", roles, 1).unwrap();
    Server::start_for(users)
}

/// Sends a request with these headers, which end in CRLF, and without a password.
fn ask(server: &Server, method: &str, path: &str, headers: &str, body: &str) -> Reply {
    let mut client = Client::connect(server.address, None);
    let length = format!("{headers}Content-Length: {}\r\n", body.len());
    client.head(method, path, &length);
    client.send(body.as_bytes());
    client.reply()
}

fn try_log_in(server: &Server, user: &str, password: &str, headers: &str) -> Reply {
    let form = format!("user={user}&password={password}");
    ask(server, "POST", "/uilogin", headers, &form)
}

/// Returns the name and token of the cookie of a reply.
fn pair(reply: &Reply) -> String {
    let cookie = reply.header("set-cookie").expect("a cookie");
    cookie.split(';').next().unwrap().to_owned()
}

/// Logs in, and returns the header with the cookie.
fn log_in(server: &Server, user: &str, password: &str) -> String {
    let reply = try_log_in(server, user, password, CONSOLE);
    reply.is(200, "");
    format!("Cookie: {}\r\n", pair(&reply))
}

fn whoami(server: &Server, headers: &str) -> Reply {
    ask(server, "GET", "/whoami", headers, "")
}

#[track_caller]
fn assert_live(server: &Server, cookie: &str, user: &str) {
    let reply = whoami(server, cookie);
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json()["id"], user);
}

#[track_caller]
fn assert_over(server: &Server, cookie: &str) {
    assert_eq!(whoami(server, cookie).status, 401);
}

#[test]
fn login_by_a_form_gives_a_cookie_that_scripts_and_other_sites_cannot_use() {
    let server = server();
    let reply = try_log_in(&server, "ada", "lovelace", "");
    reply.is(200, "");
    let cookie = reply.header("set-cookie").unwrap();
    let name = format!("ui-auth-{}=", server.address.port());
    assert!(cookie.starts_with(&name), "{cookie}");
    let attributes: Vec<&str> = cookie.split("; ").skip(1).collect();
    assert_eq!(attributes, ["Path=/", "HttpOnly", "SameSite=Strict"]);
    let cookie = format!("Cookie: other=1; {}; last=2\r\n", pair(&reply));
    assert_live(&server, &cookie, "ada");
    // A password is stronger.
    let mut client = server.connect();
    client.head("GET", "/whoami", &format!("{cookie}Content-Length: 0\r\n"));
    assert_eq!(client.reply().json()["id"], "root");
}

#[test]
fn wrong_logins_get_no_cookie_and_no_challenge() {
    let server = server();
    for (user, password) in [("ada", "wrong"), ("nobody", "lovelace"), ("", "")] {
        let reply = try_log_in(&server, user, password, "");
        assert_eq!(reply.status, 401, "{user}");
        assert_eq!(reply.header("set-cookie"), None);
        assert_eq!(reply.header("www-authenticate"), None);
    }
    let reply = whoami(&server, CONSOLE);
    assert_eq!(
        (reply.status, reply.header("www-authenticate")),
        (401, None)
    );
    assert!(whoami(&server, "").header("www-authenticate").is_some());
    // A body that is no login is not read.
    let mut client = Client::connect(server.address, None);
    client.head("POST", "/uilogin", "Content-Length: 100000\r\n");
    assert_eq!(client.reply_head().0, 413);
}

/// Attack: a page of another site makes the browser send a request, to which it adds the cookie.
#[test]
fn requests_of_other_sites_are_refused_though_they_have_the_cookie() {
    let server = server();
    let cookie = log_in(&server, "root", "secret");
    let form = "name=Eve&password=eve-eve&roles=admin";
    let put = |headers: &str| {
        let path = "/settings/rbac/users/local/eve";
        let reply = ask(&server, "PUT", path, &format!("{cookie}{headers}"), form);
        let exists = server.get(path).status == 200;
        assert_eq!(exists, reply.status == 200, "{headers:?}");
        reply.status
    };
    // A form of another site, in a browser that says nothing of its origin.
    assert_eq!(put(""), 403);
    assert_eq!(put("Content-Type: text/plain\r\n"), 403);
    assert_eq!(put("ns-server-ui: no\r\n"), 403);
    for of_browser in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
    ] {
        assert_eq!(put(of_browser), 403, "{of_browser}");
        // Also with the header, if a browser were made to send it.
        assert_eq!(put(&format!("{CONSOLE}{of_browser}")), 403, "{of_browser}");
    }
    let own = "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n";
    assert_eq!(put(&format!("{CONSOLE}{own}")), 200);
}

/// Attack: a page of another site reads, or logs the browser in as somebody else.
#[test]
fn reads_and_logins_of_other_sites_are_refused() {
    let server = server();
    let cookie = log_in(&server, "ada", "lovelace");
    let read = |headers: &str| whoami(&server, &format!("{cookie}{headers}")).status;
    assert_eq!(read("Sec-Fetch-Site: cross-site\r\n"), 403);
    assert_eq!(
        read("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"),
        403
    );
    assert_eq!(read("Sec-Fetch-Site: none\r\n"), 200);
    // A link may lead here.
    assert_eq!(
        read("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"),
        200
    );
    for headers in [
        "Origin: https://evil.example\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n",
    ] {
        let reply = try_log_in(&server, "ada", "lovelace", headers);
        assert_eq!((reply.status, reply.header("set-cookie")), (403, None));
    }
}

/// Attack: a token that somebody else knows is put into the browser, before the login or beside the right one.
#[test]
fn tokens_of_somebody_else_are_of_no_use() {
    let server = server();
    let name = format!("ui-auth-{}", server.address.port());
    let chosen = format!("Cookie: {name}=known\r\n");
    let reply = try_log_in(&server, "ada", "lovelace", &chosen);
    assert_eq!(reply.status, 200);
    assert_ne!(pair(&reply), format!("{name}=known"));
    assert_over(&server, &chosen);
    assert_over(&server, &format!("Cookie: {name}=\r\n"));
    // Two cookies of the name.
    let right = pair(&reply);
    let eves = log_in(&server, "root", "secret");
    let eves = eves.trim_start_matches("Cookie: ").trim_end();
    for both in [
        format!("Cookie: {eves}; {right}\r\n"),
        format!("Cookie: {right}\r\nCookie: {eves}\r\n"),
    ] {
        assert_over(&server, &both);
    }
    // The session from before a login ends with it.
    let before = format!("Cookie: {right}\r\n");
    assert_live(&server, &before, "ada");
    let again = try_log_in(&server, "ada", "lovelace", &before);
    assert_over(&server, &before);
    assert_live(&server, &format!("Cookie: {}\r\n", pair(&again)), "ada");
}

#[test]
fn logout_ends_the_session_and_removes_the_cookie() {
    let server = server();
    let (one, other) = (
        log_in(&server, "ada", "lovelace"),
        log_in(&server, "ada", "lovelace"),
    );
    let reply = ask(&server, "POST", "/uilogout", &one, "");
    assert_eq!(reply.status, 403, "another site could log users out");
    let reply = ask(&server, "POST", "/uilogout", &format!("{one}{CONSOLE}"), "");
    reply.is(200, "");
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.contains("=; ") && cookie.ends_with("; Max-Age=0"));
    assert_over(&server, &one);
    assert_live(&server, &other, "ada");
}

/// Attack: a stolen cookie is used after the user has changed the password, or was removed.
#[test]
fn sessions_end_with_the_password_and_the_user() {
    let server = server();
    let cookies = [
        log_in(&server, "ada", "lovelace"),
        log_in(&server, "ada", "lovelace"),
    ];
    let by = format!("{}{CONSOLE}", cookies[0]);
    let path = "/controller/changePassword";
    ask(&server, "POST", path, &by, "password=of-byron").is(200, "");
    cookies
        .iter()
        .for_each(|cookie| assert_over(&server, cookie));
    let again = log_in(&server, "ada", "of-byron");
    // The same password once more is a new one.
    let path = "/settings/rbac/users/local/ada";
    let set = |form: &str| server.connect().request("PATCH", path, form).status;
    assert_eq!(set("password=of-byron"), 200);
    assert_over(&server, &again);
    let again = log_in(&server, "ada", "of-byron");
    // Rights are those of the moment.
    assert_eq!(set("roles="), 200);
    assert_live(&server, &again, "ada");
    let users = ask(&server, "GET", "/settings/rbac/users", &again, "");
    assert_eq!(users.status, 403);
    assert_eq!(server.connect().request("DELETE", path, "").status, 200);
    assert_over(&server, &again);
}

/// A directory in which everybody has the password "open", and is a member of the group `cn=admins`.
struct Directory;

impl ExternalAuthority for Directory {
    fn remembered(&self, _: &str, _: &[u8]) -> Option<ExternalLogin> {
        None
    }

    fn check(&self, attempt: PasswordAttempt, done: LoginDone) {
        let grants = ExternalGrants {
            directory_groups: ["cn=admins".to_owned()].into(),
            ..ExternalGrants::default()
        };
        let login = ExternalLogin {
            id: external_id(&attempt.user),
            grants: Arc::new(grants),
        };
        let is_right = attempt.password.as_slice() == b"open";
        done(
            is_right
                .then_some(login)
                .ok_or(ExternalRefusal::BadCredentials),
        );
    }

    fn check_token(&self, _: TokenAttempt, done: LoginDone) {
        done(Err(ExternalRefusal::BadToken));
    }

    fn try_settings(&self, _: LdapSettings, _: LdapTrial, done: TrialDone) {
        done(Ok(Vec::new()));
    }

    fn stats(&self, _: &mut dyn FnMut(&str, &str)) {}
}

#[test]
fn users_of_a_directory_have_sessions_with_the_rights_of_their_groups() {
    let mut users = root();
    let group = GroupChange {
        roles: Some("ro_admin".parse().unwrap()),
        ldap_group_ref: Some("cn=admins".to_owned()),
        ..GroupChange::default()
    };
    users.set_group("admins", &group, Privileges::ALL).unwrap();
    users.set_ldap(Some(LdapSettings {
        authentication_enabled: true,
        authorization_enabled: true,
        ..LdapSettings::default()
    }));
    let users = Users::new(users, Box::new(|_| Ok(())));
    let server = Server::start_checked(ConnectionTimeouts::default(), users, |checks| {
        checks.with_external(Arc::new(Directory))
    });
    assert_eq!(try_log_in(&server, "eve", "wrong", CONSOLE).status, 401);
    let cookie = log_in(&server, "eve", "open");
    let reply = whoami(&server, &cookie);
    assert_eq!(reply.status, 200, "{reply:?}");
    let read = |cookie: &str| ask(&server, "GET", "/settings/rbac/users", cookie, "").status;
    assert_eq!(read(&cookie), 200);
    let set = |method: &str, path: &str, form: &str| {
        let status = server.connect().request(method, path, form).status;
        assert_eq!(status, 200, "{method} {path}");
    };
    // Rights are those of the moment.
    set("PATCH", "/settings/rbac/groups/admins", "roles=");
    assert_eq!(read(&cookie), 403);
    set("PATCH", "/settings/rbac/groups/admins", "roles=ro_admin");
    assert_eq!(read(&cookie), 200);
    // A local user of the name is another one.
    set("PUT", "/settings/rbac/users/local/eve", "password=secret");
    assert_over(&server, &cookie);
    set("DELETE", "/settings/rbac/users/local/eve", "");
    let cookie = log_in(&server, "eve", "open");
    let off = "authenticationEnabled=false&authorizationEnabled=false";
    set("POST", "/settings/ldap", off);
    assert_over(&server, &cookie);
}

#[test]
fn settings_of_security_have_the_timeout_of_sessions() {
    let server = server();
    let document = server.get("/settings/security").json();
    assert_eq!(document["uiSessionTimeout"], 600);
    assert_eq!(document.get("tlsMinVersion"), None);
    assert_eq!(
        server
            .post("/settings/security", "uiSessionTimeout=60")
            .status,
        405
    );
}

#[test]
fn number_of_sessions_is_limited_and_counted() {
    let server = server();
    let first = log_in(&server, "ada", "lovelace");
    let of_root = log_in(&server, "root", "secret");
    for _ in 0..kedge_types::limits::MGMT_SESSIONS_PER_USER_MAX {
        log_in(&server, "ada", "lovelace");
    }
    assert_over(&server, &first);
    assert_live(&server, &of_root, "root");
    let stats = server.get("/kedge/stats").json();
    assert_eq!(stats["server"]["mgmt_sessions"], "17");
}
