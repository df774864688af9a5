//! Documents that are sent again at every change, in a reply without end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::Frame;
use tokio::sync::mpsc;

use super::reply::{EarlyReply, Handled, ok_stream};
use super::state::HttpState;

/// The separator between two documents, and after each.
const SEPARATOR: &[u8] = b"\n\n\n\n";

/// The reading end: a body of unknown length.
struct DocumentStream(mpsc::Receiver<Bytes>);

impl http_body::Body for DocumentStream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0
            .poll_recv(cx)
            .map(|bytes| Some(Ok(Frame::data(bytes?))))
    }
}

/// Sends the document of `compose` now and at each new revision of the cluster, until there is none, the client
/// disconnects or the server stops. A slow client gets the newest document next, not every one.
///
/// Replies 404 if there is no document at the start.
pub(crate) fn documents(
    state: &Arc<HttpState>,
    compose: impl Fn(&HttpState) -> Option<Bytes> + Send + 'static,
) -> Handled {
    let mut revisions = state.revisions.subscribe();
    let mut document = Some(compose(state).ok_or_else(EarlyReply::no_such_resource)?);
    let (sender, receiver) = mpsc::channel(1);
    let state = state.clone();
    tokio::spawn(async move {
        let mut stopped = std::pin::pin!(state.stopped());
        while let Some(bytes) = document {
            let sent = async {
                sender.send(bytes).await.is_ok()
                    && sender.send(Bytes::from_static(SEPARATOR)).await.is_ok()
                    && revisions.changed().await.is_ok()
            };
            let go_on = tokio::select! {
                sent = sent => sent,
                // A pending send fails when the client disconnects; this is for the wait for a change.
                () = sender.closed() => false,
                () = &mut stopped => false,
            };
            if !go_on {
                return;
            }
            document = compose(&state);
        }
    });
    ok_stream(Body::new(DocumentStream(receiver)))
}
