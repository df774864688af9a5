//! `kedge config set`: settings of a running server.

use clap::Args;

use super::{ServerArgs, ToolError};
use crate::output;

/// Change settings of a running server, until its next start, and print them
///
/// These can be changed: num_reader_threads, num_writer_threads, num_auxio_threads and num_nonio_threads.
#[derive(Args, Clone, Debug)]
pub(crate) struct SetArgs {
    /// Setting and value, such as num_writer_threads=8; without any, nothing is changed
    #[arg(value_name = "NAME=VALUE")]
    changes: Vec<String>,
    #[command(flatten)]
    access: ServerArgs,
}

const SETTINGS: &str = "/pools/default/settings/memcached/global";

pub(crate) fn run(args: &SetArgs) -> Result<(), ToolError> {
    let mut form = Vec::new();
    for change in &args.changes {
        let Some((name, value)) = change.split_once('=') else {
            return Err(ToolError::Usage(format!(
                "\"{change}\" is no change; expected NAME=VALUE"
            )));
        };
        form.push((name, value));
    }
    let client = args.access.management()?;
    if !form.is_empty() {
        client.expect("POST", SETTINGS, &form)?;
    }
    let settings = client.json(SETTINGS)?;
    let mut text = String::new();
    for (name, value) in settings.as_object().into_iter().flatten() {
        text.push_str(&format!("{name} = {value}\n"));
    }
    Ok(output::print(&text)?)
}
