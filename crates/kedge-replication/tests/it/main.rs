//! Producer and consumer through their public interface.

mod flow;
mod hostile;
mod model;
mod pair;
mod requests;
mod rollback;
mod script;
mod snapshots;
mod system_events;
mod together;
mod unordered;
mod vbuckets;
