//! The first lines in Rust of README.md. They had no imports and no main once.

/// The example compiles with the tests, so the same text in the README does.
#[test]
fn the_sample_in_the_readme_is_the_example() {
    let readme = include_str!("../../../../../README.md");
    let sample = readme.split("```rust\n").nth(1).expect("a sample in Rust");
    let sample = sample.split("```").next().expect("its end");
    assert_eq!(sample, include_str!("../../examples/hello.rs"));
}
