"""The runner of memcached's own tests: the table in docs/compat.md, and results of the Test Anything Protocol."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests" / "memcached" / "upstream"))

import run  # noqa: E402


def page(*rows):
    return f"text | `x` |\n{run.BEGIN}\n\n| test | result | reason |\n|---|---|---|\n" + "\n".join(rows) + f"\n\n{run.END}\n"


class Table(unittest.TestCase):
    def test_the_page_lists_tests_once_with_a_reason_for_each_difference(self):
        text = run.PAGE.read_text(encoding="utf-8")
        expected = run.table(text)
        self.assertIn("metaget", [name for name, result in expected.items() if result == run.PASSES])
        for line in text.split(run.BEGIN)[1].split(run.END)[0].splitlines():
            if line.startswith("| `"):
                _, result, _, reason = (cell.strip() for cell in line.strip("|").split("|"))
                self.assertEqual(reason == "", result == run.PASSES, line)

    def test_rows_and_names(self):
        text = page("| `a`, `b` | passes | |", "| `c` | fails 3 | no `slabs` |")
        self.assertEqual(run.table(text), {"a": "passes", "b": "passes", "c": "fails 3"})

    def test_a_test_that_is_listed_twice_is_an_error(self):
        with self.assertRaises(ValueError):
            run.table(page("| `a` | passes | |", "| `a` | fails 1 | |"))


class Results(unittest.TestCase):
    def result(self, output, **rest):
        return run.outcome_of(output, **rest).result()

    def test_passes(self):
        self.assertEqual(self.result("1..2\nok 1 - a\nok 2\n"), "passes")
        self.assertEqual(self.result("ok 1\n    not ok 1 - inner\nnot ok 2 # TODO\n1..2\n"), "passes")

    def test_failures_are_numbered(self):
        output = "1..5\nnot ok 1\nok 2\nnot ok 3\nnot ok 4 - b\nnot ok 5\n"
        self.assertEqual(self.result(output, code=4), "fails 1, 3-5")

    def test_a_test_that_ends_early_or_never(self):
        self.assertEqual(self.result("1..3\nok 1\n", code=2), "ends after 1")
        self.assertEqual(self.result("ok 1\n"), "ends after 1")
        self.assertEqual(self.result("1..3\nok 1\n", timed_out=True), "no end after 1")
        self.assertEqual(self.result("1..1\nok 1\n", code=-11), "exit code -11")

    def test_refused_flags_and_skips(self):
        self.assertEqual(self.result("", refused=["-M", "-d", "-M"]), "refused `-M`, `-d`; ends after 0")
        self.assertEqual(self.result("1..0 # SKIP no proxy\n"), "skips itself")


class Comparison(unittest.TestCase):
    """A result that is worse or better than the table, and a test that is missing on one side, are errors."""

    def unexpected(self, tests, *rows):
        with tempfile.TemporaryDirectory() as directory:
            source = pathlib.Path(directory)
            (source / "t").mkdir()
            for name in tests:
                (source / "t" / f"{name}.t").touch()
            (source / "page").write_text(page(*rows))
            with (
                mock.patch.object(run, "PAGE", source / "page"),
                mock.patch.object(run, "prepare"),
                mock.patch.object(run, "run", lambda _, name: (run.outcome_of(tests[name]), tests[name], "")),
                mock.patch("builtins.print"),
            ):
                return run.main([directory])

    def test_listed_results(self):
        self.assertEqual(self.unexpected({"a": "ok 1\n1..1", "b": "not ok 1\n1..1"}, "| `a` | passes |", "| `b` | fails 1 |"), 0)

    def test_a_failure_that_is_not_listed(self):
        self.assertEqual(self.unexpected({"a": "not ok 1\n1..1"}, "| `a` | passes |"), 1)

    def test_a_difference_that_no_longer_exists(self):
        self.assertEqual(self.unexpected({"a": "ok 1\n1..1"}, "| `a` | fails 1 |"), 1)

    def test_a_test_without_a_row_and_a_row_without_a_test(self):
        self.assertEqual(self.unexpected({"a": "ok 1\n1..1"}), 1)
        self.assertEqual(self.unexpected({}, "| `a` | passes |"), 1)


if __name__ == "__main__":
    unittest.main()
