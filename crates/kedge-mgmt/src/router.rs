//! The routes of all paths.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post, put};
use tower::ServiceExt as _;

use super::reply::{EarlyReply, Handled};
use super::request_context::{PeerConnection, RequestContext};
use super::state::HttpState;
use super::{
    audit, audited, auth, auto_failover, buckets, certificates, cluster, collections, compaction,
    custom_roles, encryption, encryption_settings, groups, hosts, jwt, kedge, ldap, membership,
    metrics, nodes, password_policy, permissions, pools, ready, rebalance, security,
    security_headers, server_groups, session_login, threads, tls, users,
};

/// The service that handles requests. A clone is cheap.
#[derive(Clone)]
pub(crate) struct App(Router);

impl App {
    pub(crate) fn new(state: Arc<HttpState>) -> Self {
        let router = Router::new()
            .route("/", get(pools::ping))
            .route("/whoami", get(pools::whoami))
            .route("/controller/changePassword", post(users::change_password))
            .route("/uilogin", post(not_found))
            .route("/uilogout", post(session_login::log_out))
            .merge(pool_routes())
            .merge(bucket_routes())
            .merge(user_routes())
            .merge(cluster_routes())
            .merge(audit_routes())
            .route("/metrics", get(metrics::metrics))
            .route("/kedge/ready", get(ready::ready))
            .route("/kedge/stats", get(kedge::stats))
            .route("/kedge/timings/{bucket}", get(kedge::timings))
            .route("/kedge/timings/{bucket}/{name}", get(kedge::timing))
            .route_layer(from_fn_with_state(state.clone(), audited::record))
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
            .layer(from_fn_with_state(state.clone(), cluster::everywhere))
            .layer(from_fn_with_state(state.clone(), auth::authenticate))
            .layer(from_fn_with_state(state.clone(), hosts::guard))
            .layer(from_fn(security_headers::add))
            .with_state(state);
        Self(router)
    }

    /// Handles one request of a connection.
    pub(crate) async fn call(
        self,
        mut request: Request<Body>,
        arrival: PeerConnection,
    ) -> Response {
        normalise(&mut request);
        request.extensions_mut().insert(arrival);
        let answered: Result<Response, Infallible> = self.0.oneshot(request).await;
        answered.unwrap_or_else(|never| match never {})
    }
}

type Routes = Router<Arc<HttpState>>;

fn pool_routes() -> Routes {
    Router::new()
        .route("/pools", get(pools::pools))
        .route(
            "/pools/default",
            get(pools::default_pool).post(pools::rename),
        )
        .route("/pools/nodes", get(pools::nodes))
        .route("/pools/default/nodeServices", get(pools::node_services))
        .route(
            "/pools/default/nodeServicesStreaming",
            get(pools::node_services_streaming),
        )
        .route(
            "/pools/default/terseClusterInfo",
            get(pools::terse_cluster_info),
        )
        .route("/pools/default/certificate", get(tls::certificate))
        .route("/pools/default/certificates", get(certificates::all))
        .route(
            "/pools/default/certificate/node/{node}",
            get(certificates::of_node),
        )
        .route("/pools/default/trustedCAs", get(tls::trusted_cas))
        .route(
            "/pools/default/trustedCAs/{id}",
            axum::routing::delete(tls::remove_trusted_ca),
        )
        .route(
            "/controller/regenerateCertificate",
            post(tls::regenerate_certificate),
        )
        .route(
            "/node/controller/loadTrustedCAs",
            post(tls::load_trusted_cas),
        )
        .route(
            "/node/controller/reloadCertificate",
            post(tls::reload_certificate),
        )
        .route(
            "/settings/clientCertAuth",
            get(tls::client_cert_auth).post(tls::set_client_cert_auth),
        )
        .route("/kedge/tls", get(tls::status))
        .merge(encryption_routes())
        .route("/pools/default/tasks", get(compaction::tasks))
        .route("/pools/default/rebalanceProgress", get(rebalance::progress))
        .route("/pools/default/checkPermissions", post(permissions::check))
}

fn encryption_routes() -> Routes {
    Router::new()
        .route(
            "/settings/encryptionKeys",
            get(encryption_settings::keys).post(encryption_settings::create_key),
        )
        .route(
            "/settings/encryptionKeys/{id}",
            get(encryption_settings::key)
                .put(encryption_settings::change_key)
                .delete(encryption_settings::change_key),
        )
        .route(
            "/controller/rotateEncryptionKey/{id}",
            post(encryption_settings::rotate_key),
        )
        .route(
            "/settings/encryptionKeys/{id}/test",
            post(encryption_settings::test_key),
        )
        .route(
            "/settings/security/encryptionAtRest",
            get(encryption_settings::settings).post(encryption_settings::set_settings),
        )
        .route(
            "/controller/dropEncryptionAtRestDeks/{part}",
            post(encryption_settings::drop_keys),
        )
        .route(
            "/controller/forceEncryptionAtRest/{part}",
            post(encryption_settings::force),
        )
        .route(
            "/controller/forceEncryptionAtRest/bucket/{bucket}",
            post(encryption_settings::force_bucket),
        )
        .route("/kedge/encryption/{bucket}", get(encryption::status))
        .route(
            "/controller/dropEncryptionAtRestDeks/bucket/{bucket}",
            post(encryption::rotate),
        )
}

/// The path of a bucket.
const BUCKET: &str = "/pools/default/buckets/{bucket}";

fn bucket_routes() -> Routes {
    Router::new()
        .route("/pools/default/b/{bucket}", get(buckets::terse))
        .route("/pools/default/bs/{bucket}", get(buckets::terse_streaming))
        .route(
            "/pools/default/bucketsStreaming/{bucket}",
            get(buckets::streaming),
        )
        .route(
            "/pools/default/buckets",
            get(buckets::list).post(buckets::create),
        )
        .route(
            BUCKET,
            get(buckets::get)
                .post(buckets::update)
                .delete(buckets::remove),
        )
        .route("/kedge/buckets/unserved", get(buckets::unserved))
        .route(
            "/kedge/buckets/unserved/{bucket}/adopt",
            post(buckets::adopt),
        )
        .route(&format!("{BUCKET}/stats"), get(buckets::stats))
        .route(&format!("{BUCKET}/nodes"), get(nodes::list))
        .route(&format!("{BUCKET}/nodes/{{node}}"), get(nodes::get))
        .route(&format!("{BUCKET}/nodes/{{node}}/stats"), get(nodes::stats))
        .merge(bucket_controller_routes())
        .merge(collection_routes())
}

fn bucket_controller_routes() -> Routes {
    Router::new()
        .route(
            &format!("{BUCKET}/controller/doFlush"),
            post(buckets::flush),
        )
        .route(
            &format!("{BUCKET}/controller/compactBucket"),
            post(compaction::compact),
        )
        .route(
            &format!("{BUCKET}/controller/compactDatabases"),
            post(compaction::compact),
        )
        .route(
            &format!("{BUCKET}/controller/unsafePurgeBucket"),
            post(compaction::purge),
        )
        .route(
            &format!("{BUCKET}/controller/cancelBucketCompaction"),
            post(compaction::cancel),
        )
        .route(
            &format!("{BUCKET}/controller/cancelDatabasesCompaction"),
            post(compaction::cancel),
        )
        .route(
            &format!("{BUCKET}/controller/resetVbucket"),
            post(buckets::reset_vbucket),
        )
}

fn collection_routes() -> Routes {
    Router::new()
        .route(
            &format!("{BUCKET}/scopes"),
            get(collections::manifest)
                .post(collections::create_scope)
                .put(collections::replace),
        )
        .route(
            &format!("{BUCKET}/scopes/@ensureManifest/{{uid}}"),
            post(collections::ensure_manifest),
        )
        .route(
            &format!("{BUCKET}/scopes/{{scope}}"),
            axum::routing::delete(collections::drop_scope),
        )
        .route(
            &format!("{BUCKET}/scopes/{{scope}}/collections"),
            post(collections::create_collection),
        )
        .route(
            &format!("{BUCKET}/scopes/{{scope}}/collections/{{collection}}"),
            axum::routing::delete(collections::drop_collection)
                .patch(collections::modify_collection),
        )
}

fn user_routes() -> Routes {
    Router::new()
        .route("/settings/rbac/users", get(users::list))
        .route("/settings/rbac/users/{domain}", get(users::list_domain))
        .route(
            "/settings/rbac/users/{domain}/{user}",
            put(users::put)
                .patch(users::patch)
                .get(users::get)
                .delete(users::remove),
        )
        .route("/settings/rbac/roles", get(users::roles))
        .route("/kedge/roles", get(custom_roles::list))
        .route(
            "/kedge/roles/{role}",
            get(custom_roles::get)
                .put(custom_roles::put)
                .delete(custom_roles::remove),
        )
        .route("/settings/rbac/groups", get(groups::list))
        .route(
            "/settings/rbac/groups/{group}",
            get(groups::get)
                .put(groups::put)
                .patch(groups::patch)
                .delete(groups::remove),
        )
}

fn cluster_routes() -> Routes {
    Router::new()
        .route("/kedge/cluster/node", get(cluster::about))
        .route("/kedge/cluster/map", get(cluster::map).put(cluster::give))
        .route("/kedge/cluster/positions", get(cluster::positions))
        .route(
            "/kedge/cluster/fence",
            post(cluster::fence).delete(cluster::fence),
        )
        .route("/kedge/cluster/promise", post(cluster::promise))
        .route("/kedge/cluster/release", post(cluster::release))
        .route("/kedge/cluster/figures", get(cluster::figures))
        .route("/kedge/cluster/status", get(cluster::status))
        .route("/kedge/cluster/failover", post(cluster::fail_over))
        .route("/kedge/cluster/recover", post(cluster::recover))
        .route("/kedge/cluster/add", post(cluster::add))
        .route("/kedge/cluster/remove", post(cluster::remove))
        .route("/kedge/cluster/level", post(cluster::level))
        .route("/kedge/cluster/move", post(cluster::move_vbucket))
        .route("/kedge/cluster/balance", post(cluster::balance))
        .route("/kedge/cluster/group", post(server_groups::move_node))
        .route(
            "/settings/autoFailover",
            get(auto_failover::get).post(auto_failover::set),
        )
        .route(
            "/settings/autoFailover/resetCount",
            post(auto_failover::reset_count),
        )
        .route(
            "/settings/rebalance",
            get(rebalance::settings).post(rebalance::set_settings),
        )
        .route(
            "/kedge/cluster/rebalance",
            get(rebalance::status).post(rebalance::start),
        )
        .route("/kedge/cluster/rebalance/stop", post(rebalance::stop))
        .route(
            "/pools/default/settings/memcached/global",
            get(threads::get).post(threads::set),
        )
        .route(
            "/settings/passwordPolicy",
            get(password_policy::get).post(password_policy::set),
        )
        .route(
            "/settings/ldap",
            get(ldap::get).post(ldap::set).delete(ldap::remove),
        )
        .route(
            "/settings/jwt",
            get(jwt::get).put(jwt::set).delete(jwt::remove),
        )
        .route("/settings/ldap/validate/{trial}", post(ldap::validate))
        .route("/kedge/cluster/drain", post(rebalance::drain))
        .merge(membership_routes())
        .route("/controller/rebalance", post(rebalance::controller_start))
        .route(
            "/controller/stopRebalance",
            post(rebalance::controller_stop),
        )
}

fn audit_routes() -> Routes {
    Router::new()
        .route("/settings/audit", get(audit::get).post(audit::set))
        .route("/settings/security", get(security::get))
        .route("/settings/audit/descriptors", get(audit::descriptors))
        .route(
            "/settings/audit/nonFilterableDescriptors",
            get(audit::other_descriptors),
        )
}

fn membership_routes() -> Routes {
    Router::new()
        .route("/controller/addNode", post(membership::add))
        .route("/controller/addNodeV2", post(membership::add))
        .route("/controller/ejectNode", post(membership::eject))
        .route("/controller/failOver", post(membership::fail_over))
        .route("/controller/startFailover", post(membership::fail_over))
        .route(
            "/controller/startGracefulFailover",
            post(membership::start_graceful_failover),
        )
        .route(
            "/controller/setRecoveryType",
            post(membership::set_recovery_type),
        )
        .route("/controller/reAddNode", post(membership::re_add))
        .route("/controller/reFailOver", post(membership::re_fail_over))
        .route(
            "/pools/default/serverGroups",
            get(server_groups::list)
                .post(server_groups::add)
                .put(server_groups::assign),
        )
        .route(
            "/pools/default/serverGroups/{group}",
            put(server_groups::rename).delete(server_groups::remove),
        )
        .route(
            "/pools/default/serverGroups/{group}/addNode",
            post(membership::add_to_group),
        )
}

async fn not_found(_: RequestContext) -> Handled {
    Err(EarlyReply::text(StatusCode::NOT_FOUND, "Not found."))
}

async fn method_not_allowed(_: RequestContext) -> Handled {
    Err(EarlyReply::text(
        StatusCode::METHOD_NOT_ALLOWED,
        "Method Not Allowed",
    ))
}

/// Removes slashes at the end of the path: some clients send them, some do not.
fn normalise(request: &mut Request<Body>) {
    let uri = request.uri();
    let path = uri.path();
    let trimmed = path.trim_end_matches('/');
    if trimmed.len() == path.len() || path.len() == 1 {
        return;
    }
    let path = if trimmed.is_empty() { "/" } else { trimmed };
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    // A part of a valid URI is one itself.
    if let Ok(shorter) = text.parse::<Uri>() {
        *request.uri_mut() = shorter;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_slashes_are_ignored() {
        for (uri, expected) in [
            ("/", "/"),
            ("//", "/"),
            ("/pools", "/pools"),
            ("/pools/", "/pools"),
            ("/pools//", "/pools"),
            ("/pools/?a=b/", "/pools?a=b/"),
            ("/pools?a=/", "/pools?a=/"),
            ("/a%2F/", "/a%2F"),
        ] {
            let mut request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            normalise(&mut request);
            assert_eq!(request.uri().to_string(), expected, "{uri}");
        }
    }
}
