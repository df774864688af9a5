//! The first lines in Rust of README.md as a module for a test, with another address.

use std::path::Path;

fn main() {
    let readme = "../../../README.md";
    println!("cargo:rerun-if-changed={readme}");
    println!("cargo:rerun-if-changed=build.rs");
    let text = std::fs::read_to_string(readme).expect("README.md");
    let sample = text.split("```rust\n").nth(1).expect("a sample in Rust");
    let sample = sample.split("```").next().expect("its end");
    let address = "\"couchbase://127.0.0.1\"";
    assert_eq!(sample.matches(address).count(), 1, "one {address}");
    let module = sample.replace(address, "super::address()");
    let target = Path::new(&std::env::var_os("OUT_DIR").expect("OUT_DIR")).join("readme.rs");
    std::fs::write(target, module).expect("the module is written");
}
