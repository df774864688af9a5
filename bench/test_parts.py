"""The results of benchmarks in parts: a part that is measured again replaces its own figures and no others."""

import json
import pathlib
import tempfile
import types
import unittest
from unittest import mock

import parts

ABOUT = {
    "machine": {"cores": 2, "processor": "X", "memory_bytes": 1 << 30, "kernel": "6", "filesystem": "ext4"},
    "not_quiet": [],
    "during": {},
    "quick": False,
}


def part(name, figure):
    """A part whose only bar is its figure."""

    def report(measured, bars):
        bars.at_most(name, measured, 1.0, "s")
        return f"It takes {measured} s.\n\n### More\n"

    return types.SimpleNamespace(
        NAME=name, TITLE=name.title(), BARS=[(name, "<=", 1.0, "s")], measure=lambda: figure, report=report
    )


class Retake(unittest.TestCase):
    def run_main(self, *argv, **figures):
        of = [part(name, figure) for name, figure in figures.items()]
        watch = types.SimpleNamespace(end=lambda: ABOUT)
        with (
            mock.patch("parts.RESULTS", self.results), mock.patch("harness.RESULTS", self.results),
            mock.patch("harness.ROOT", self.results), mock.patch("parts.WORK", self.results),
            mock.patch("parts.Watch", lambda: watch), mock.patch("sys.argv", ["bench", *argv]), mock.patch("builtins.print"),
        ):
            parts.main("b", "B", of, "usage", lambda _: None)

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.results = pathlib.Path(directory.name)

    def test_a_retaken_part_replaces_its_figures_and_bars_alone(self):
        self.run_main(one=2.0, two=3.0, three=0.5)
        self.run_main("--retake", "two", one=9.0, two=0.75, three=9.0)
        text = (self.results / "b.md").read_text()
        for expected in ("It takes 2.0 s.", "It takes 0.75 s.", "It takes 0.5 s.", "bar two 0.75s <=1s met", "bar one 2.00s <=1s MISSED"):
            self.assertEqual(text.count(expected), 1, f"{expected} in {text}")
        self.assertNotIn("3.0", text)
        headings = [line for line in text.splitlines() if line.startswith("#")]
        self.assertEqual(
            headings, ["# B", "## One", "### More", "## Two", "### More", "## Three", "### More", "## Bars"]
        )
        self.assertEqual(text.count("Taken later than the other parts. 2 cores, X"), 1)
        document = json.loads((self.results / "b.json").read_text())
        self.assertEqual([row["measured"] for row in document["bars"]], [2.0, 0.75, 0.5])
        self.assertEqual([document["parts"][name]["data"] for name in ("one", "two", "three")], [2.0, 0.75, 0.5])

    def test_a_retake_needs_names_and_an_earlier_run(self):
        for argv in (["--retake"], ["--retake", "one"]):
            with self.assertRaisesRegex(SystemExit, "needs the names of parts"):
                self.run_main(*argv, one=1.0)

    def test_parts_alone_write_no_results(self):
        self.run_main("one", one=1.0)
        self.assertFalse((self.results / "b.md").exists())

    def test_results_without_the_section_are_an_error(self):
        with self.assertRaisesRegex(ValueError, "no section 'Two'"):
            parts.replaced("intro\n\n## One\n\ntext\n", "Two", "## Two\n")


if __name__ == "__main__":
    unittest.main()
