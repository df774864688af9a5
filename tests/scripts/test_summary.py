"""The summary of `make test`.

A failing test of the workspace once kept the models and tidy from running, and the closing summary, which knew the
end-to-end suites only, was all green.
"""

import os
import pathlib
import subprocess
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parents[1] / "run"
PARTS = "cargo model scripts python go node java rust memcached cluster".split()


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
        self.assertEqual(lines[-1], "parts: 10 passed, 0 failed, 0 skipped")
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
            ["parts: 8 passed, 2 failed, 0 skipped", "first failure: cargo: LOGS/cargo.log:3:test two ... FAILED"],
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
        self.assertEqual(lines[-1], "parts: 9 passed, 0 failed, 1 skipped")


class Part(unittest.TestCase):
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
