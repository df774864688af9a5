"""The parts of `make test` and their summary.

A failing test of the workspace once kept the models and tidy from running, and the closing summary, which knew the
end-to-end suites only, was all green. Later a test that did not compile kept every part from running, and the summary
repeated the results of an earlier run.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
RUN = REPOSITORY / "tests" / "run"
PARTS = "cargo model scripts python go node java rust memcached users kms cluster etcd deploy".split()


def summary(**parts):
    """The exit code and the lines of a summary of PART=(exit code, log); the other parts have passed."""
    with tempfile.TemporaryDirectory() as logs:
        for name in PARTS:
            part = parts.get(name, (0, "test result: ok. 3 passed; 0 failed\n"))
            if part is not None:
                code, log = part
                pathlib.Path(logs, f"{name}.exit").write_text(f"{code}\n")
                pathlib.Path(logs, f"{name}.log").write_text(log)
        done = subprocess.run(
            [RUN, "summary"], env={**os.environ, "KEDGE_TEST_LOGS": logs}, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.replace(logs, "LOGS").splitlines()


class Summary(unittest.TestCase):
    def test_all_parts_passed(self):
        code, lines = summary()
        self.assertEqual(code, 0)
        self.assertEqual(lines[-1], "parts: 14 passed, 0 failed, 0 skipped")
        for name in PARTS:
            self.assertIn(f"== {name}: passed", lines)

    def test_a_failure_is_counted_and_its_first_line_named(self):
        log = "running 2 tests\ntest one ... ok\ntest two ... FAILED\ntest three ... FAILED\n"
        code, lines = summary(cargo=(101, log), go=(1, "--- FAIL: TestUsers (0.02s)\nFAIL\n"))
        self.assertEqual(code, 1)
        self.assertIn("== cargo: FAILED", lines)
        self.assertIn("== go: FAILED", lines)
        self.assertIn("== model: passed", lines)
        self.assertEqual(
            lines[-2:],
            ["parts: 12 passed, 2 failed, 0 skipped", "first failure: cargo: LOGS/cargo.log:3:test two ... FAILED"],
        )

    def test_the_output_of_the_first_failed_rust_test_is_shown(self):
        log = "test two ... FAILED\n\nfailures:\n\n---- two stdout ----\nthread 'two' panicked at a.rs:1:1:\n" + 2000 * "x"
        _, lines = summary(cargo=(101, log))
        self.assertEqual(
            lines[-4:],
            [
                "first failure: cargo: LOGS/cargo.log:1:test two ... FAILED",
                "---- two stdout ----",
                "thread 'two' panicked at a.rs:1:1:",
                1000 * "x",
            ],
        )

    def test_a_part_that_did_not_run_is_a_failure(self):
        code, lines = summary(model=None)
        self.assertEqual(code, 1)
        self.assertIn("== model: NOT RUN", lines)
        self.assertEqual(lines[-1], "first failure: model did not run")

    def test_a_failure_of_an_unknown_form_is_the_end_of_the_log(self):
        code, lines = summary(java=(1, "something new\nthe end\n"))
        self.assertEqual(code, 1)
        self.assertEqual(lines[-1], "first failure: java: LOGS/java.log:the end")

    def test_a_skipped_part_is_no_failure_and_says_why(self):
        code, lines = summary(node=(0, "node: SKIPPED: npm is not installed; Node.js 20 is needed\n"))
        self.assertEqual(code, 0)
        self.assertIn("== node: skipped", lines)
        self.assertIn("node: SKIPPED: npm is not installed; Node.js 20 is needed", lines)
        self.assertEqual(lines[-1], "parts: 13 passed, 0 failed, 1 skipped")


# Commands in place of the real ones. `cargo` cannot compile the tests of the workspace; it notes results of an earlier
# run that it still finds.
TOOLS = {
    "cargo": """case "$*" in
*--workspace*)
    ls "$REPOSITORY"/.cache/log/*.exit >> "$REPOSITORY/stale" 2>/dev/null
    echo 'error[E0432]: unresolved import `kedge::nothing`' >&2
    exit 101 ;;
build*)
    mkdir -p "$REPOSITORY/target/debug"
    cp "$0" "$REPOSITORY/target/debug/kedge" ;;
esac
echo "test result: ok. 1 passed"
""",
    "go": "echo ok",
    "node": "exit 0",
    "npm": "mkdir -p node_modules",
    **{name: "exit 0" for name in ("etcd", "etcdctl", "ip", "java", "mvn", "memccapable", "openssl", "python3", "systemd-analyze")},
}


def executable(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


class AllParts(unittest.TestCase):
    """`make test` of a tree that has the Makefile and tests/run, and no more."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.tree = pathlib.Path(place.name)
        (self.tree / "tests").mkdir()
        shutil.copy(REPOSITORY / "Makefile", self.tree)
        shutil.copy(RUN, self.tree / "tests")
        for suite in ("sdk/go", "sdk/node", "sdk/java", "sdk/rust", "cluster", "etcd"):
            (self.tree / "tests" / suite).mkdir(parents=True)
        (self.tree / "tests/sdk/node/package-lock.json").touch()
        for suite, place in (("sdk/python", "venv-sdk"), ("memcached", "venv-memcached"), ("users", "venv-users"), ("kms", "venv-kms"), ("deploy", "venv-deploy")):
            requirements = self.tree / "tests" / suite / "requirements.txt"
            requirements.parent.mkdir(parents=True)
            requirements.touch()
            executable(self.tree / ".cache" / place / "bin" / "python", "exit 0")
            (self.tree / ".cache" / place / ".installed-from").touch()
        for suite in ("etcd", "deploy"):
            (self.tree / "tests" / suite / "go.sum").touch()
        executable(self.tree / "tests/etcd/descriptors", "exit 0")
        for name, script in TOOLS.items():
            executable(self.tree / "tools" / name, script)
        (self.tree / ".cache" / "log").mkdir()
        for name in PARTS:
            (self.tree / ".cache" / "log" / f"{name}.exit").write_text("0\n")

    def make_test(self):
        """The exit code and the lines of a run."""
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MAKE", "MFLAGS", "KEDGE_", "CARGO"))
        }
        environment = {
            **inherited,
            "PATH": f"{self.tree / 'tools'}:{os.environ['PATH']}",
            "REPOSITORY": str(self.tree),
        }
        done = subprocess.run(
            ["make", "test"], cwd=self.tree, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.splitlines()

    def test_parts_run_and_are_summarised_when_tests_do_not_compile(self):
        code, lines = self.make_test()
        self.assertNotEqual(code, 0)
        self.assertIn("== cargo: FAILED", lines)
        for name in PARTS[1:]:
            self.assertIn(f"== {name}: passed", lines)
        self.assertIn("parts: 13 passed, 1 failed, 0 skipped", lines)
        first = f"first failure: cargo: {self.tree}/.cache/log/cargo.log:1:error[E0432]: unresolved import `kedge::nothing`"
        self.assertIn(first, lines)
        self.assertFalse((self.tree / "stale").read_text(), "results of an earlier run are removed first")

    def test_suites_do_not_run_against_the_binary_of_an_earlier_build(self):
        executable(self.tree / "target/debug/kedge", "exit 0")
        executable(self.tree / "tools/cargo", "echo 'error: could not compile `kedge`' >&2; exit 101")
        code, lines = self.make_test()
        self.assertNotEqual(code, 0)
        self.assertIn("== scripts: passed", lines)
        self.assertIn("== python: FAILED", lines)
        self.assertIn(f"python: {self.tree}/target/debug/kedge is missing: run make test-build", lines)


class Part(unittest.TestCase):
    def test_the_readme_names_the_oldest_python(self):
        oldest = re.search(r"Python (3\.\d+) or newer is needed", RUN.read_text())[1]
        self.assertIn(f"also needs Python {oldest},", (REPOSITORY / "README.md").read_text())
        self.assertIn(f"< ({oldest.replace('.', ', ')})", RUN.read_text())

    def test_an_old_python_is_refused(self):
        for ci, code, word in ((True, 1, ""), (False, 0, "SKIPPED: ")):
            with self.subTest(ci=ci), tempfile.TemporaryDirectory() as tools:
                # Any check of the version fails.
                executable(pathlib.Path(tools, "python3"), '[ "$1" = --version ] && echo Python 3.9.25 && exit; exit 1')
                environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "CI": str(ci).lower()}
                done = subprocess.run(
                    [RUN, "prepare", "memcached"], env=environment, capture_output=True, text=True, check=False
                )
                self.assertEqual(done.returncode, code)
                message = f"memcached: {word}Python 3.9.25 is too old; Python 3.10 or newer is needed\n"
                self.assertEqual(done.stderr, message)

    def test_an_unknown_part_is_refused(self):
        done = subprocess.run([RUN, "no-such-part"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("usage: tests/run", done.stderr)

    def test_the_exit_code_of_a_part_is_kept(self):
        with tempfile.TemporaryDirectory() as logs:
            environment = {**os.environ, "KEDGE_TEST_LOGS": logs, "KEDGE_BIN": "/nowhere/kedge"}
            done = subprocess.run([RUN, "python"], env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(pathlib.Path(logs, "python.exit").read_text(), "1\n")
            self.assertIn("/nowhere/kedge is missing", pathlib.Path(logs, "python.log").read_text())


if __name__ == "__main__":
    unittest.main()
