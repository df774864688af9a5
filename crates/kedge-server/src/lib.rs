//! Front-end threads, connections, dispatch, management over HTTP.
