//! Another node, as this one sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kedge_cluster::{ClusterMap, FailoverAttempt, LevelRange, MapNode, NodePositions};
use kedge_coordination::lease::PromiseRequest;
use kedge_node::coordination::NodeReport;
use kedge_node::http_client::{HttpClient, HttpError, HttpReply};
use kedge_node::node_access::NodeAccess;
use kedge_sync::{RankedCondvar, RankedMutex, ranks::PeerStatusRank};

use super::followed::Followed;

/// The interval at which each other node is asked for its state.
pub(super) const ASK_INTERVAL: Duration = Duration::from_millis(500);
/// The timeout of connecting to another node, and of each wait for its reply, when it is asked for its state.
pub(super) const ASK_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for which a node counts as reachable after a reply: one pending request and the next. So every caller
/// learns within two seconds that a node is gone.
const ANSWER_HOLDS: Duration = Duration::from_millis(1_800);

/// The timeout of a transfer of the positions of all vBuckets, or of a map.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause before a loading node is asked for its positions again.
const LOADING_PAUSE: Duration = Duration::from_millis(50);

/// The last known status of another node.
#[derive(Debug, Default)]
pub(super) struct PeerStatus {
    /// The last report with its time; `None` if the node did not respond last time.
    pub(super) about: Option<(NodeReport, Instant)>,
    /// The positions of its copies; `None` if they were not received since the last request for them.
    pub(super) positions: Option<NodePositions>,
    /// True if the positions are wanted.
    wants_positions: bool,
    /// A map that this node has put into the store, until it is sent.
    offered: Option<Arc<ClusterMap>>,
    poked: bool,
    /// The last problem, so that it is logged once.
    trouble: String,
}

impl PeerStatus {
    /// Returns whether the node responded last time, and not too long before `now`: a node that hangs has not responded
    /// yet.
    fn is_reached(&self, now: Instant) -> bool {
        let answered = self.about.as_ref().map(|(_, at)| *at);
        answered.is_some_and(|at| now.saturating_duration_since(at) <= ANSWER_HOLDS)
    }
}

/// Another node.
pub(super) struct Peer {
    pub(super) number: u16,
    pub(super) name: String,
    client: HttpClient,
    access: Arc<NodeAccess>,
    /// The address of its management.
    address: (String, u16),
    /// True once it is no other node of the followed map any more, or has another address.
    dismissed: AtomicBool,
    pub(super) status: RankedMutex<PeerStatusRank, PeerStatus>,
    wake: RankedCondvar,
}

/// The error of a request to a node.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("it answered {0}: {1}")]
    Refused(u16, String),
    #[error("its answer cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("it is node \"{0}\"")]
    Other(String),
}

impl Peer {
    pub(super) fn new(number: u16, node: &MapNode, access: &Arc<NodeAccess>) -> Self {
        let port = access.mgmt_port(node.mgmt_port, node.tls);
        Self {
            number,
            name: node.name.clone(),
            client: access.client(&node.name, &node.host, port),
            access: access.clone(),
            address: (node.host.clone(), port),
            dismissed: AtomicBool::new(false),
            status: RankedMutex::default(),
            wake: RankedCondvar::new(),
        }
    }

    /// Returns whether this is the node of the map, at its present address.
    pub(super) fn is_at(&self, node: &MapNode) -> bool {
        let (host, port) = &self.address;
        let now = self.access.mgmt_port(node.mgmt_port, node.tls);
        self.name == node.name && *host == node.host && *port == now
    }

    /// Ends the thread.
    pub(super) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::SeqCst);
        self.poke();
    }

    /// Makes the thread send a map of the store to the node.
    pub(super) fn offer(&self, map: &Arc<ClusterMap>) {
        self.status.lock().offered = Some(map.clone());
        self.poke();
    }

    /// Makes the thread ask the node at once.
    pub(super) fn poke(&self) {
        self.status.lock().poked = true;
        self.wake.notify_all();
    }

    /// Requests the positions, unless they are requested already.
    pub(super) fn want_positions_once(&self) {
        let mut status = self.status.lock();
        if !status.wants_positions {
            status.wants_positions = true;
            status.poked = true;
            self.wake.notify_all();
        }
    }

    /// Forgets the known positions.
    pub(super) fn forget_positions(&self) {
        self.status.lock().positions = None;
    }

    /// Returns whether the node responded last time.
    pub(super) fn is_up(&self) -> bool {
        self.status.lock().about.is_some()
    }

    /// Returns whether the node is reachable, as far as is known now.
    pub(super) fn is_reached(&self) -> bool {
        self.status.lock().is_reached(Instant::now())
    }

    /// Returns the compatibility levels that the node reported last.
    pub(super) fn levels(&self) -> Option<LevelRange> {
        let status = self.status.lock();
        status.about.as_ref().map(|(about, _)| about.levels)
    }

    /// Notes a response in the middle of a longer exchange.
    fn is_heard(&self) {
        if let Some((_, at)) = &mut self.status.lock().about {
            *at = Instant::now();
        }
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        body: &[u8],
        within: Duration,
    ) -> Result<HttpReply, PeerError> {
        let client = self.client.within(within);
        let reply = client.send(method, path, "application/json", body)?;
        if reply.is_success() {
            return Ok(reply);
        }
        let words = String::from_utf8_lossy(&reply.body).trim().to_owned();
        Err(PeerError::Refused(reply.code, words))
    }

    /// Returns the state that the node reports.
    pub(super) fn about(&self, within: Duration) -> Result<NodeReport, PeerError> {
        self.report("/kedge/cluster/node", within)
    }

    /// Returns the state that the node reports when it follows users of that revision or newer ones, or after `wait`.
    pub(super) fn await_users(
        &self,
        revision: u64,
        wait: Duration,
    ) -> Result<NodeReport, PeerError> {
        let ms = wait.as_millis();
        let path = format!("/kedge/cluster/node?users={revision}&wait_ms={ms}");
        self.report(&path, wait + ASK_TIMEOUT)
    }

    fn report(&self, path: &str, within: Duration) -> Result<NodeReport, PeerError> {
        let reply = self.request("GET", path, &[], within)?;
        let about: NodeReport = serde_json::from_slice(&reply.body)?;
        if about.node == self.name {
            Ok(about)
        } else {
            Err(PeerError::Other(about.node))
        }
    }

    /// Returns the positions of the node's copies.
    pub(super) fn positions(&self) -> Result<NodePositions, PeerError> {
        let path = "/kedge/cluster/positions";
        let reply = self.request("GET", path, &[], TRANSFER_TIMEOUT)?;
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// Makes the node stop following another one for the moment, for an attempt of a failover, and returns its positions after
    /// that.
    pub(super) fn fence(
        &self,
        node: &str,
        attempt: FailoverAttempt,
    ) -> Result<NodePositions, PeerError> {
        let path = format!("/kedge/cluster/fence?node={node}&attempt={attempt}");
        let reply = self.request("POST", &path, &[], TRANSFER_TIMEOUT)?;
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// Asks the node for its promise not to fail `node` over.
    pub(super) fn promise(
        &self,
        node: &str,
        request: PromiseRequest,
        within: Duration,
    ) -> Result<(), PeerError> {
        let (by, ms, known) = (&self.name, request.time.as_millis(), request.known);
        let path = format!("/kedge/cluster/promise?node={node}&by={by}&ms={ms}&known={known}");
        self.request("POST", &path, &[], within).map(drop)
    }

    /// Asks the node to end the lease of `node`, whose process serves no more.
    pub(super) fn release_lease(&self, node: &str, within: Duration) -> Result<(), PeerError> {
        let path = format!("/kedge/cluster/release?node={node}");
        self.request("POST", &path, &[], within).map(drop)
    }

    /// Makes the node follow the nodes again that an attempt of a failover has fenced.
    pub(super) fn lift_fences(&self, attempt: FailoverAttempt) -> Result<(), PeerError> {
        let path = format!("/kedge/cluster/fence?attempt={attempt}");
        self.request("DELETE", &path, &[], ASK_TIMEOUT).map(drop)
    }

    /// Returns the node's document of figures.
    pub(super) fn figures(&self) -> Result<serde_json::Value, PeerError> {
        let reply = self.request("GET", "/kedge/cluster/figures", &[], ASK_TIMEOUT)?;
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// Returns a document of the node's management.
    pub(super) fn document(&self, path: &str) -> Result<serde_json::Value, PeerError> {
        let reply = self.request("GET", path, &[], ASK_TIMEOUT)?;
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// Sends a map. The reply comes when the node has applied it or a newer one, or after `wait`.
    pub(super) fn give(&self, map: &ClusterMap, wait: Duration) -> Result<NodeReport, PeerError> {
        let path = format!("/kedge/cluster/map?wait_ms={}", wait.as_millis());
        let reply = self.request("PUT", &path, &map.to_json(), wait + ASK_TIMEOUT)?;
        Ok(serde_json::from_slice(&reply.body)?)
    }

    /// Repeats a request on the node.
    pub(super) fn repeat(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<(), PeerError> {
        let client = self.client.within(TRANSFER_TIMEOUT);
        let reply = client.send(method, path, content_type, body)?;
        if reply.is_success() {
            return Ok(());
        }
        let words = String::from_utf8_lossy(&reply.body).trim().to_owned();
        Err(PeerError::Refused(reply.code, words))
    }

    /// Records the result of a request.
    fn note(&self, asked: Result<NodeReport, PeerError>) {
        let mut status = self.status.lock();
        let trouble = match asked {
            Ok(about) => {
                if status.about.is_none() {
                    tracing::info!(node = self.name, "another node answers");
                }
                status.about = Some((about, Instant::now()));
                String::new()
            }
            Err(error) => {
                status.about = None;
                error.to_string()
            }
        };
        let is_news = !trouble.is_empty() && trouble != status.trouble;
        if is_news {
            tracing::warn!(
                node = self.name,
                why = trouble,
                "another node does not answer"
            );
        }
        status.trouble = trouble;
    }
}

/// Communicates with one node until the server ends, or the node is dismissed.
pub(super) fn run(followed: &Weak<Followed>, peer: &Peer) {
    while let Some(node) = followed.upgrade() {
        if node.is_stopping() || peer.dismissed.load(Ordering::SeqCst) {
            return;
        }
        let was_up = peer.is_up();
        let asked = ask(&node, peer);
        let news = asked.is_ok() != was_up;
        peer.note(asked);
        if news {
            node.poke();
        }
        let mut status = peer.status.lock();
        if !status.poked {
            let pause = if status.wants_positions && status.about.is_some() {
                LOADING_PAUSE
            } else {
                ASK_INTERVAL
            };
            peer.wake.wait_for(&mut status, pause);
        }
        status.poked = false;
    }
}

/// Asks a node for its state, or sends it a map, and asks for its positions if they are wanted.
fn ask(node: &Followed, peer: &Peer) -> Result<NodeReport, PeerError> {
    let offered = peer.status.lock().offered.take();
    let about = match offered {
        Some(map) => peer.give(&map, Duration::ZERO)?,
        None => peer.about(ASK_TIMEOUT)?,
    };
    peer.is_heard();
    // Positions by another map have no meaning.
    let is_of_map = about.revision == node.revision();
    let wants_positions = is_of_map && peer.status.lock().wants_positions;
    // A loading node has none yet, and is asked again.
    if wants_positions && let Ok(positions) = peer.positions() {
        let mut status = peer.status.lock();
        status.positions = Some(positions);
        status.wants_positions = false;
        drop(status);
        node.poke();
    }
    Ok(about)
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(ANSWER_HOLDS.as_millis() < 2_000);
    // A node that responds in time never counts as gone.
    const _: () =
        assert!(ASK_INTERVAL.as_millis() + ASK_TIMEOUT.as_millis() < ANSWER_HOLDS.as_millis());

    #[test]
    fn failed_node_is_detected_within_two_seconds() {
        let answered = Instant::now();
        let about = NodeReport {
            node: "n_1".to_owned(),
            revision: None,
            applied: None,
            users: 0,
            encryption: String::new(),
            release: String::new(),
            restarted_ms: None,
            levels: LevelRange::default(),
        };
        let mut status = PeerStatus {
            about: Some((about, answered)),
            ..PeerStatus::default()
        };
        for (after_ms, is_reached) in [(0, true), (1_500, true), (1_801, false), (2_000, false)] {
            let now = answered + Duration::from_millis(after_ms);
            assert_eq!(status.is_reached(now), is_reached, "{after_ms} ms");
        }
        // A refusal or a timeout is known at once.
        status.about = None;
        assert!(!status.is_reached(answered));
    }
}
