"""Where a run of a benchmark writes its results: a short run must not replace the committed figures of a full one."""

import os
import pathlib
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parent


def results(quick):
    """The directory of the results, relative to the repository, of a run with QUICK set to this."""
    done = subprocess.run(
        [sys.executable, "-c", "import harness; print(harness.RESULTS.relative_to(harness.ROOT))"],
        cwd=BENCH, env={**os.environ, "QUICK": quick}, capture_output=True, text=True, check=True,
    )
    return done.stdout.strip()


class Results(unittest.TestCase):
    def test_a_full_run_writes_the_committed_results(self):
        for full in ("", "0"):
            self.assertEqual(results(full), "bench/results")

    def test_a_short_run_writes_beside_what_git_keeps(self):
        short = results("1")
        ignored = subprocess.run(["git", "check-ignore", "-q", short], cwd=BENCH.parent, check=False)
        self.assertEqual((short, ignored.returncode), ("target/bench/quick-results", 0))


if __name__ == "__main__":
    unittest.main()
