//! The first lines in Rust of README.md, run as they stand there but for the address. They had no imports and no main
//! once.

use std::sync::OnceLock;

use crate::server::Server;

static ADDRESS: OnceLock<String> = OnceLock::new();

fn address() -> &'static str {
    ADDRESS.get().expect("set before the sample runs")
}

/// The sample, which `build.rs` takes from README.md.
mod sample {
    include!(concat!(env!("OUT_DIR"), "/readme.rs"));

    pub fn run() -> Result<(), Box<dyn std::error::Error>> {
        main()
    }
}

#[test]
fn the_sample_in_the_readme_runs() {
    let server = Server::start();
    ADDRESS.set(server.connection_string()).expect("set once");
    sample::run().expect("the sample succeeds");
}
