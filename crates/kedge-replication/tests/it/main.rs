//! Producer and consumer through their public interface.

mod flow;
mod hostile;
mod model;
mod pair;
mod requests;
mod rollback;
mod script;
mod snapshots;
mod together;
mod vbuckets;
