//! The commands of the binary protocol, with a file for each family: parse (`kedge_protocol`), execute
//! (`kedge_bucket`), compose.

mod arithmetic;
mod bucket_stats;
mod collection_details;
mod collection_stats;
mod collections;
mod compact;
mod complete;
mod concat;
mod config;
pub(crate) mod context;
mod dcp;
mod dcp_stats;
mod file_copy;
mod flush;
mod get;
mod hello;
mod key_stats;
mod keys;
mod lock;
pub(crate) mod memcached_stats;
mod memory_stats;
mod meta;
mod misc;
mod node_stats;
mod observe;
mod range_scan;
mod remove;
mod sasl;
mod seqno;
mod stat;
mod stat_lines;
mod stat_steps;
mod storage_stats;
mod store;
mod subdoc;
mod table;
mod task_stats;
mod timer;
mod touch;
mod vbucket;
mod with_meta;

pub(crate) use complete::{complete, counter, document, meta_of, mutation, status_of};
pub(crate) use config::push_map;
pub(crate) use context::{CommandContext, CommandOutcome, LongRun, completion_callback};
pub(crate) use misc::plain_version;
pub(crate) use observe::observed;
pub(crate) use range_scan::is_partial;
pub(crate) use sasl::{
    audit_login, auth_file_user, check_plain_delay, log_in_of_auth_file, logged_in,
    on_user_changed, submit_login, take_login,
};
pub(crate) use stat::StatRequest;
pub(crate) use stat_steps::answer;
pub(crate) use table::row;
