//! The groups of STAT for memcached clients only, with memcached's names (memcached doc/protocol.txt, "Statistics").
//!
//! Kedge has no slabs, so all documents are shown as one slab class with the number 1.

use std::collections::HashMap;

use kedge_bucket::Bucket;
use kedge_node::machine::cpu_seconds;
use kedge_types::limits::VALUE_BYTES_MAX;

use crate::server_context::ServerContext;
use crate::session::Session;
use crate::stat_generator::AddStat;

/// The slab class of all documents.
const CLASS: u32 = 1;

/// The refusal of groups that would list keys, with memcached's text for that.
pub(crate) fn refusal(group: &[u8]) -> Option<&'static str> {
    match group.split(|&byte| byte == b' ').next() {
        Some(b"cachedump") => Some("stats cachedump not allowed"),
        Some(b"detail") => Some("stats detail not allowed"),
        _ => None,
    }
}

/// The general statistics of memcached that the server has under no other name.
pub(super) fn general(shared: &ServerContext, bucket: &Bucket, each: AddStat<'_>) {
    if let Some((user, system)) = cpu_seconds() {
        each("rusage_user", &format!("{user:.6}"));
        each("rusage_system", &format!("{system:.6}"));
    }
    let connections = shared.metrics.snapshot().curr_connections;
    each("connection_structures", &connections.to_string());
    // Excess connections are closed, so accepting never stops.
    each("accepting_conns", "1");
    each("listen_disabled_num", "0");
    each("time_in_listen_disabled_us", "0");
    let figures = figures(bucket);
    let figure = |name| figures.get(name).copied().unwrap_or_default();
    each("total_items", &figure("cmd_set").to_string());
    // An evicted document stays on disk, so none is lost.
    each("evictions", "0");
    each("reclaimed", &figure("vb_active_expired").to_string());
}

/// `items`: the documents as one slab class; no lines without documents.
pub(super) fn items(bucket: &Bucket, each: AddStat<'_>) {
    let figures = figures(bucket);
    let figure = |name| figures.get(name).copied().unwrap_or_default();
    if figure("curr_items") == 0 {
        return;
    }
    for (name, value) in [
        ("number", figure("curr_items")),
        ("mem_requested", figure("mem_used")),
        ("evicted", 0),
        ("evicted_nonzero", 0),
        ("reclaimed", figure("vb_active_expired")),
    ] {
        each(&format!("items:{CLASS}:{name}"), &value.to_string());
    }
}

/// `slabs`: the memory of the slab class, and its operations.
pub(super) fn slabs(bucket: &Bucket, each: AddStat<'_>) {
    let figures = figures(bucket);
    let figure = |name| figures.get(name).copied().unwrap_or_default();
    let documents = figure("curr_items");
    if documents > 0 {
        for (name, value) in [
            ("used_chunks", documents),
            ("mem_requested", figure("mem_used")),
            ("get_hits", figure("get_hits")),
            ("cmd_set", figure("cmd_set")),
            ("delete_hits", figure("delete_hits")),
            ("incr_hits", figure("incr_hits")),
            ("decr_hits", figure("decr_hits")),
            ("cas_hits", figure("cas_hits")),
            ("cas_badval", figure("cas_badval")),
            ("touch_hits", figure("touch_hits")),
        ] {
            each(&format!("{CLASS}:{name}"), &value.to_string());
        }
    }
    each("active_slabs", if documents > 0 { "1" } else { "0" });
    each("total_malloced", &figure("mem_used").to_string());
}

/// `sizes`: disabled, as in memcached by default.
pub(super) fn sizes(each: AddStat<'_>) {
    each("sizes_status", "disabled");
}

/// `conns`: the listening socket, and the connections of its port by number.
pub(super) fn connections(shared: &ServerContext, session: &Session, each: AddStat<'_>) {
    let list = &shared.memcached.connections;
    let Some(listen) = list.listen() else {
        return;
    };
    each("0:addr", &format!("tcp:{listen}"));
    each("0:state", "conn_listening");
    for (id, peer) in list.all() {
        each(&format!("{id}:addr"), &format!("tcp:{peer}"));
        each(&format!("{id}:listen_addr"), &format!("tcp:{listen}"));
        // The state of another connection is known to its own thread only.
        if session.memcached_connection_id() == Some(id) {
            each(&format!("{id}:state"), "conn_parse_cmd");
        }
    }
}

/// The settings of memcached, beside those for all clients.
pub(super) fn settings(shared: &ServerContext, each: AddStat<'_>) {
    let rules = &shared.memcached.rules;
    let yes = |it| if it { "yes" } else { "no" };
    if let Some(listen) = shared.memcached.connections.listen() {
        each("tcpport", &listen.port().to_string());
        each("inter", &listen.ip().to_string());
    }
    each("udpport", "0");
    each("domain_socket", "NULL");
    each("evictions", "off");
    each("binding_protocol", "auto-negotiate");
    each("auth_enabled_sasl", yes(rules.login));
    each("auth_enabled_ascii", yes(rules.login));
    each("shutdown_command", "no");
    each("dump_enabled", "no");
    each("detail_enabled", "no");
    each("track_sizes", "no");
}

/// The largest value that a client may send, in bytes.
pub(super) fn item_bytes_max(shared: &ServerContext, is_memcached: bool) -> usize {
    if is_memcached {
        shared.memcached.rules.item_bytes_max
    } else {
        VALUE_BYTES_MAX
    }
}

fn figures(bucket: &Bucket) -> HashMap<String, u64> {
    let mut figures = HashMap::new();
    bucket.stats(&mut |name, value| {
        if let Ok(number) = value.parse() {
            figures.insert(name.to_owned(), number);
        }
    });
    figures
}
