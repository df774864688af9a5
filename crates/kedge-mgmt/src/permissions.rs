//! `POST /pools/default/checkPermissions`: checks permissions of the caller.
//!
//! Permissions are text, `cluster.bucket[travel].data.docs!read`: objects from the cluster down, one of which may be a
//! bucket, scope or collection with its name in brackets (`.` is any), and an operation. Names are those of Couchbase
//! Server's REST interface (documentation of the call, and Sync Gateway's requests); a table maps each to a privilege.

use axum::body::Body;
use axum::http::StatusCode;
use kedge_auth::{Privilege, Privileges, Roles};
use serde_json::{Map, Value};

use super::form;
use super::reply::{EarlyReply, Handled, ok};
use super::request_context::RequestContext;

/// An object below the cluster or a bucket, true if objects below it count as well, operations (none: every one), and
/// the required privilege.
type PermissionRow = (&'static str, bool, &'static [&'static str], Privilege);

/// Objects of a bucket, scope or collection.
const OF_BUCKETS: &[PermissionRow] = {
    use Privilege as P;
    &[
        ("", false, &["create", "delete"], P::Buckets),
        ("", false, &["flush"], P::Flush),
        ("", false, &["compact"], P::Manage),
        ("settings", true, &["read"], P::Access),
        ("settings", true, &["write"], P::Manage),
        ("stats", true, &["read"], P::Stats),
        ("collections", true, &["read"], P::Access),
        ("collections", true, &["write"], P::Collections),
        ("data", false, &["read"], P::Read),
        ("data", false, &["insert"], P::Insert),
        ("data", false, &["upsert", "write"], P::Upsert),
        ("data", false, &["delete", "write"], P::Delete),
        ("data.docs", false, &["read", "range_scan"], P::Read),
        ("data.docs", false, &["insert"], P::Insert),
        ("data.docs", false, &["upsert", "write"], P::Upsert),
        ("data.docs", false, &["delete", "write"], P::Delete),
        ("data.meta", false, &["read"], P::Read),
        ("data.meta", false, &["write"], P::WriteMeta),
        ("data.xattr", false, &["read"], P::Read),
        ("data.xattr", false, &["write"], P::Upsert),
        ("data.sxattr", false, &["read"], P::ReadSystem),
        ("data.sxattr", false, &["write"], P::WriteSystem),
        ("data.dcp", false, &["read"], P::Stream),
        ("data.dcp", false, &["write"], P::Admin),
        ("data.dcpstream", false, &["read"], P::Stream),
        // Of services that Kedge does not have.
        ("n1ql", true, &[], P::Admin),
        ("fts", true, &[], P::Admin),
        ("views", true, &[], P::Admin),
        ("analytics", true, &[], P::Admin),
        ("eventing", true, &[], P::Admin),
        ("sgw", true, &[], P::Admin),
        ("xdcr", true, &[], P::Admin),
    ]
};

/// Objects of the cluster.
const OF_CLUSTER: &[PermissionRow] = {
    use Privilege as P;
    &[
        ("pools", true, &["read"], P::Access),
        ("pools", true, &["write"], P::Settings),
        ("nodes", true, &["read"], P::Access),
        ("nodes", true, &["write"], P::Settings),
        ("server_groups", true, &["read"], P::Access),
        ("server_groups", true, &["write"], P::Settings),
        ("buckets", false, &["read"], P::Access),
        ("buckets", false, &["create"], P::Buckets),
        ("settings", true, &["read"], P::Inspect),
        ("settings", true, &["write"], P::Settings),
        ("logs", true, &["read"], P::Inspect),
        ("tasks", true, &["read"], P::Access),
        ("stats", true, &["read"], P::Stats),
        ("admin", true, &[], P::Admin),
        ("admin.stats_export", false, &["read"], P::Stats),
        ("admin.users", true, &["read"], P::InspectUsers),
        ("admin.users", true, &["write"], P::Users),
        ("admin.security", true, &["read"], P::InspectUsers),
        ("admin.security", true, &["write"], P::Users),
        ("admin.security.admin", true, &[], P::Admin),
        // Of features that Kedge does not have.
        ("n1ql", true, &[], P::Admin),
        ("fts", true, &[], P::Admin),
        ("analytics", true, &[], P::Admin),
        ("eventing", true, &[], P::Admin),
        ("backup", true, &[], P::Admin),
        ("sgw", true, &[], P::Admin),
        ("xdcr", true, &[], P::Admin),
        ("ui", true, &[], P::Admin),
    ]
};

/// The scope of a permission. A name of `None` is any.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PermissionScope<'a> {
    Cluster,
    Bucket(Option<&'a str>),
    Scope([Option<&'a str>; 2]),
    Collection([Option<&'a str>; 3]),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Permission<'a> {
    place: PermissionScope<'a>,
    /// The object below the scope, with dots between its parts.
    object: String,
    operation: &'a str,
}

/// Iterates over the parts between the dots that are not in brackets.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    path.split(move |letter| {
        inside = match letter {
            '[' => true,
            ']' => false,
            _ => inside,
        };
        letter == '.' && !inside
    })
}

fn is_word(text: &str) -> bool {
    let letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_';
    !text.is_empty() && text.bytes().all(letter)
}

/// Parses names in brackets, separated by colons.
fn names<const N: usize>(inside: &str) -> Option<[Option<&str>; N]> {
    let names: Vec<&str> = inside.split(':').collect();
    let whole = !names.iter().any(|name| name.is_empty());
    let names: [&str; N] = names.try_into().ok().filter(|_| whole)?;
    Some(names.map(|name| Some(name).filter(|name| *name != ".")))
}

impl<'a> Permission<'a> {
    /// Parses a permission; `None` if the text is none.
    fn parse(text: &'a str) -> Option<Self> {
        let (path, operation) = text.rsplit_once('!')?;
        let mut segments = segments(path);
        if segments.next() != Some("cluster") || !is_word(operation) {
            return None;
        }
        let mut permission = Self {
            place: PermissionScope::Cluster,
            object: String::new(),
            operation,
        };
        for segment in segments {
            let named = segment.split_once('[');
            let (word, inside) = match named {
                Some((word, rest)) => (word, Some(rest.strip_suffix(']')?)),
                None => (segment, None),
            };
            if !is_word(word) {
                return None;
            }
            let first =
                permission.place == PermissionScope::Cluster && permission.object.is_empty();
            match (word, inside) {
                ("bucket", Some(inside)) if first => {
                    let [bucket] = names(inside)?;
                    permission.place = PermissionScope::Bucket(bucket);
                }
                ("scope", Some(inside)) if first => {
                    permission.place = PermissionScope::Scope(names(inside)?);
                }
                ("collection", Some(inside)) if first => {
                    permission.place = PermissionScope::Collection(names(inside)?);
                }
                (word, _) => {
                    if !permission.object.is_empty() {
                        permission.object.push('.');
                    }
                    permission.object.push_str(word);
                }
            }
        }
        (permission.place != PermissionScope::Cluster || !permission.object.is_empty())
            .then_some(permission)
    }

    /// Returns the required privileges; `None` if the object or operation is unknown.
    fn needs(&self) -> Option<Privileges> {
        let rows = match self.place {
            PermissionScope::Cluster => OF_CLUSTER,
            _ => OF_BUCKETS,
        };
        let covers = |(object, below, ..): &&PermissionRow| {
            let rest = self.object.strip_prefix(object);
            rest.is_some_and(|rest| rest.is_empty() || (*below && rest.starts_with('.')))
        };
        // The row with the longest match counts.
        let longest = rows.iter().filter(covers).map(|row| row.0.len()).max()?;
        let of_object = rows
            .iter()
            .filter(covers)
            .filter(|row| row.0.len() == longest);
        let taken = of_object.filter(|(_, _, operations, _)| {
            operations.is_empty() || self.operation == "all" || operations.contains(&self.operation)
        });
        let taken = taken.map(|row| Privileges::of(&[row.3]));
        taken.reduce(Privileges::and)
    }

    /// Returns whether a user with these roles has the permission, if these are the buckets.
    fn is_held(&self, roles: &Roles, buckets: &[String]) -> bool {
        let Some(needed) = self.needs() else {
            return false;
        };
        let in_bucket = |bucket: &str| roles.privileges(Some(bucket)).allow(needed);
        let in_part = |bucket: &str, scope: Option<&str>, collection: Option<Option<&str>>| {
            let parts = roles.parts(bucket);
            let mut parts = parts.iter().filter(|part| part.privileges().allow(needed));
            let fits = parts.any(|part| match (scope, collection) {
                (None, _) => true,
                (Some(scope), None) => part.covers(scope, None),
                (Some(scope), Some(None)) => part.touches(scope),
                (Some(scope), Some(Some(collection))) => part.covers(scope, Some(collection)),
            });
            in_bucket(bucket) || fits
        };
        let where_named = |name: Option<&str>, held: &dyn Fn(&str) -> bool| match name {
            Some(name) => held(name),
            // Roles for all buckets also count while there is none.
            None => held("*") || buckets.iter().any(|bucket| held(bucket)),
        };
        match self.place {
            PermissionScope::Cluster => roles.privileges(None).allow(needed),
            PermissionScope::Bucket(bucket) => where_named(bucket, &in_bucket),
            PermissionScope::Scope([bucket, scope]) => {
                where_named(bucket, &|bucket| in_part(bucket, scope, None))
            }
            PermissionScope::Collection([bucket, scope, collection]) => {
                where_named(bucket, &|bucket| in_part(bucket, scope, Some(collection)))
            }
        }
    }
}

/// `POST /pools/default/checkPermissions`: permissions, separated by commas or line ends; the reply repeats each with
/// true or false. Every user may ask.
pub(crate) async fn check(call: RequestContext, body: Body) -> Handled {
    let refused = |text: String| EarlyReply::json(StatusCode::BAD_REQUEST, &Value::String(text));
    let bytes = form::read(body).await?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|_| refused("The permissions are not UTF-8 text.".to_owned()))?;
    let asked = text.split([',', '\n']).map(str::trim);
    let asked: Vec<&str> = asked.filter(|text| !text.is_empty()).collect();
    if asked.is_empty() {
        let form = "cluster.bucket[NAME].data.docs!read";
        return Err(refused(format!(
            "No permission was given; permissions have the form {form}, with commas or line ends between."
        )));
    }
    let buckets = call.buckets().list().into_iter();
    let buckets: Vec<String> = buckets.map(|facts| facts.config.name).collect();
    let mut held = Map::new();
    for text in asked {
        let permission = Permission::parse(text)
            .ok_or_else(|| refused(format!("Malformed permission: {text}")))?;
        let is_held = permission.is_held(&call.caller.roles, &buckets);
        held.insert(text.to_owned(), is_held.into());
    }
    ok(&Value::Object(held))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Permissions, and roles that have them; the buckets are "b" and "travel".
    #[test]
    fn permissions_of_roles() {
        let buckets = ["b".to_owned(), "travel".to_owned()];
        for (roles, permission, expected) in [
            ("admin", "cluster.bucket[travel].data!read", true),
            ("admin", "cluster.admin.security!write", true),
            ("admin", "cluster.bucket[b].sgw.dev_ops!all", true),
            ("admin", "cluster.bucket[b].n1ql.select!execute", true),
            ("admin", "cluster.no_such_thing!read", false),
            ("admin", "cluster.bucket[b].data.docs!fly", false),
            ("", "cluster.pools!read", false),
            ("ro_admin", "cluster.pools!read", true),
            ("ro_admin", "cluster.pools!write", false),
            ("ro_admin", "cluster.settings.memcached!read", true),
            ("ro_admin", "cluster.bucket[b].stats!read", true),
            ("ro_admin", "cluster.bucket[b].data.docs!read", false),
            ("ro_admin", "cluster.admin.security!read", true),
            ("ro_admin", "cluster.admin.memcached!read", false),
            ("user_admin_local", "cluster.admin.users!write", true),
            (
                "user_admin_local",
                "cluster.admin.security.admin!write",
                false,
            ),
            ("cluster_admin", "cluster.buckets!create", true),
            ("cluster_admin", "cluster.bucket[b]!delete", true),
            ("cluster_admin", "cluster.admin.users!read", false),
            ("bucket_admin[b]", "cluster.bucket[b]!flush", true),
            ("bucket_admin[b]", "cluster.bucket[travel]!flush", false),
            ("bucket_admin[b]", "cluster.bucket[.]!flush", true),
            ("bucket_admin[gone]", "cluster.bucket[.]!flush", false),
            ("bucket_admin[*]", "cluster.bucket[.]!flush", true),
            ("bucket_admin[b]", "cluster.bucket[b].settings!write", true),
            ("data_reader[b]", "cluster.bucket[b].data.docs!read", true),
            (
                "data_reader[b]",
                "cluster.bucket[b].data.docs!upsert",
                false,
            ),
            ("data_reader[b]", "cluster.bucket[b].data.docs!all", false),
            (
                "data_reader[b]",
                "cluster.collection[b:s:c].data.docs!read",
                true,
            ),
            (
                "data_reader[b],data_writer[b]",
                "cluster.bucket[b].data.docs!all",
                true,
            ),
            (
                "data_reader[b:s]",
                "cluster.bucket[b].data.docs!read",
                false,
            ),
            (
                "data_reader[b:s]",
                "cluster.scope[b:s].data.docs!read",
                true,
            ),
            (
                "data_reader[b:s]",
                "cluster.scope[b:t].data.docs!read",
                false,
            ),
            (
                "data_reader[b:s]",
                "cluster.scope[b:.].data.docs!read",
                true,
            ),
            (
                "data_reader[b:s]",
                "cluster.scope[.:.].data.docs!read",
                true,
            ),
            (
                "data_reader[b:s]",
                "cluster.scope[travel:.].data.docs!read",
                false,
            ),
            (
                "data_reader[b:s:c]",
                "cluster.scope[b:s].data.docs!read",
                false,
            ),
            (
                "data_reader[b:s:c]",
                "cluster.collection[b:s:c].data.docs!read",
                true,
            ),
            (
                "data_reader[b:s:c]",
                "cluster.collection[b:s:d].data.docs!read",
                false,
            ),
            (
                "data_reader[b:s:c]",
                "cluster.collection[b:s:.].data.docs!read",
                true,
            ),
            (
                "data_reader[b:s:c]",
                "cluster.collection[b:t:.].data.docs!read",
                false,
            ),
            (
                "data_reader[b:s:c]",
                "cluster.collection[.:.:.].data.docs!read",
                true,
            ),
            (
                "data_dcp_reader[b]",
                "cluster.bucket[b].data.dcpstream!read",
                true,
            ),
            (
                "external_stats_reader",
                "cluster.admin.stats_export!read",
                true,
            ),
            (
                "external_stats_reader",
                "cluster.bucket[b].stats!read",
                false,
            ),
            (
                "sync_gateway_app[b]",
                "cluster.bucket[b].sgw.appdata!read",
                false,
            ),
        ] {
            let parsed = Permission::parse(permission).unwrap();
            let roles: Roles = roles.parse().unwrap();
            let held = parsed.is_held(&roles, &buckets);
            assert_eq!(held, expected, "{roles}: {permission}");
        }
    }

    #[test]
    fn malformed_permissions_are_rejected() {
        for text in [
            "",
            "!",
            "cluster",
            "cluster!",
            "cluster!read",
            "bucket[b].data!read",
            "cluster.bucket[b].data",
            "cluster.bucket[b.data!read",
            "cluster.bucket[].data!read",
            "cluster.bucket[b:s].data!read",
            "cluster.scope[b].data!read",
            "cluster.collection[b::c].data!read",
            "cluster..data!read",
            "cluster.data!re ad",
            "cluster.da-ta!read",
        ] {
            assert_eq!(Permission::parse(text), None, "{text}");
        }
        let dotted = Permission::parse("cluster.bucket[a.b].data.docs!read").unwrap();
        assert_eq!(dotted.place, PermissionScope::Bucket(Some("a.b")));
        assert_eq!(dotted.object, "data.docs");
    }

    /// Unreachable rows, and rows without a privilege, would be mistakes.
    #[test]
    fn every_permission_row_is_reachable() {
        for (rows, place) in [(OF_BUCKETS, ".bucket[b]"), (OF_CLUSTER, "")] {
            for (object, _, operations, privilege) in rows {
                for operation in operations
                    .iter()
                    .chain(operations.is_empty().then_some(&"all"))
                {
                    let dot = if object.is_empty() { "" } else { "." };
                    let text = format!("cluster{place}{dot}{object}!{operation}");
                    let needs = Permission::parse(&text).unwrap().needs();
                    let own = Privileges::of(&[*privilege]);
                    assert!(needs.is_some_and(|needs| needs.allow(own)), "{text}");
                }
            }
        }
    }
}
