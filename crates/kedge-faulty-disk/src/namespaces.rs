//! Namespaces of users and mounts, in which a test may mount file systems.

use std::process::Command;

/// The variable of a test that runs in namespaces of its own.
const IN_NAMESPACES: &str = "KEDGE_TEST_IN_NAMESPACES";

/// Returns whether the test of that name may mount file systems. The first call runs the test again in a process with
/// namespaces of its own, for users and for mounts, and returns false when that has passed. File systems go with that
/// process.
///
/// Where the system does not allow namespaces, the test is skipped with a note, and fails if `CI` is set: it passed there
/// without having tested anything.
///
/// # Panics
/// When the test fails in its namespaces.
#[must_use]
pub fn in_namespaces(test: &str) -> bool {
    if std::env::var_os(IN_NAMESPACES).is_some() {
        return true;
    }
    let can = Command::new("unshare").args(["-rm", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        let why = "unshare -rm fails: namespaces of users and mounts are needed";
        assert!(!std::env::var("CI").is_ok_and(|ci| ci == "true"), "{why}");
        eprintln!("skipped: {why}");
        return false;
    }
    let mut again = Command::new("unshare");
    again
        .arg("-rm")
        .arg(std::env::current_exe().expect("its path"))
        .args(["--exact", test, "--nocapture"])
        .env(IN_NAMESPACES, "1");
    let output = again.output().expect("the command starts");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(
        stdout.contains("1 passed"),
        "{test} is not its name: {stdout}"
    );
    false
}
