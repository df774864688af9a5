#!/usr/bin/env python3
"""Runs memcached's own tests, `t/*.t`, against Kedge, and compares the results with the table in docs/compat.md.

    run.py SOURCE [NAME...]     the tests in memcached's source tree SOURCE; all, or those named

Each test has a process group, a directory and servers of its own, all removed afterwards. A result that is not the one of
the table is an error, also one that is better.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "compat.md"
BEGIN = "<!-- memcached's own tests: read by tests/memcached/upstream/run.py -->"
END = "<!-- end -->"

# The tests mostly wait.
AT_ONCE = 3
SECONDS_PER_TEST = 120
NOT_RUN = "not run"
PASSES = "passes"

# Lines that end a test instead of failing: calls of `stats detail` that are refused, and the missing object of an error that
# does not occur. The table lists both differences. And checks of every response, which would make the numbers of subtests
# depend on the number of statistics: they end the test.
REPLACED = {
    "binary": [
        ('Test::More::is(length($hdr), ::MIN_RECV_BYTES, "Expected read length");', "die unless length($hdr) == ::MIN_RECV_BYTES;"),
        ('Test::More::is($magic, ::RES_MAGIC, "Got proper response magic");', "die unless $magic == ::RES_MAGIC;"),
        ('Test::More::is($opaque, $myopaque, "Expected opaque");', "die unless $opaque == $myopaque;"),
        ("ok($@->not_found,", "ok(ref $@ && $@->not_found,"),
        ("$mc->stats('detail on');", "eval { $mc->stats('detail on') };"),
        ("my %stats = $mc->stats('detail dump');", "my %stats = eval { $mc->stats('detail dump') };"),
    ],
}


@dataclasses.dataclass
class Outcome:
    """The end of one test, from its output in the Test Anything Protocol."""

    passed: int = 0
    failed: list = dataclasses.field(default_factory=list)
    planned: int | None = None
    skipped: bool = False
    refused: list = dataclasses.field(default_factory=list)
    timed_out: bool = False
    code: int = 0

    def result(self):
        """Returns the text of this outcome in the table."""
        if self.skipped:
            return "skips itself"
        parts = []
        if self.refused:
            parts.append("refused " + ", ".join(f"`{flag}`" for flag in self.refused))
        if self.failed:
            parts.append("fails " + ranges(self.failed))
        ran = self.passed + len(self.failed)
        if self.timed_out:
            parts.append(f"no end after {ran}")
        elif self.planned is None or ran < self.planned:
            parts.append(f"ends after {ran}")
        elif ran > self.planned:
            parts.append(f"runs {ran} instead of {self.planned}")
        elif self.code and not self.failed:
            parts.append(f"exit code {self.code}")
        return "; ".join(parts) or PASSES


def ranges(numbers):
    """Returns ascending numbers as text: 1, 3-5."""
    spans = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def outcome_of(output, refused=(), timed_out=False, code=0):
    outcome = Outcome(refused=list(dict.fromkeys(refused)), timed_out=timed_out, code=code)
    for line in output.splitlines():
        if match := re.match(r"1\.\.(\d+)(\s*#\s*SKIP)?", line, re.IGNORECASE):
            outcome.planned = int(match[1])
            outcome.skipped = outcome.planned == 0
        elif match := re.match(r"(not )?ok\b(?:\s+(\d+))?(.*)", line):
            tolerated = re.search(r"#\s*(SKIP|TODO)", match[3], re.IGNORECASE)
            if match[1] and not tolerated:
                outcome.failed.append(int(match[2] or 0))
            else:
                outcome.passed += 1
    return outcome


def table(text):
    """Returns the result of each test that docs/compat.md lists. A test that is listed twice is an error."""
    section = text.split(BEGIN, 1)[1].split(END, 1)[0]
    expected = {}
    for line in section.splitlines():
        if not line.startswith("|") or re.match(r"\|(-+\||\s*test\s*\|)", line):
            continue
        tests, result = (cell.strip() for cell in line.strip("|").split("|")[:2])
        for name in re.findall(r"`([^`]+)`", tests):
            if name in expected:
                raise ValueError(f"{name} is listed twice")
            expected[name] = result
    return expected


def prepare(source, directory):
    """Creates the tree that the tests expect around them."""
    shutil.copytree(source / "t", directory / "t")
    (directory / "doc").mkdir()
    shutil.copy(source / "doc" / "protocol.txt", directory / "doc")
    shutil.copy(HERE / "memcached-debug", directory)
    # memcached's own timedrun adds a process and a time limit.
    (directory / "timedrun").write_text('#!/bin/sh\nshift\nexec "$@"\n')
    (directory / "timedrun").chmod(0o755)
    for name, replacements in REPLACED.items():
        test = directory / "t" / f"{name}.t"
        text = test.read_text()
        for old, new in replacements:
            if old not in text:
                raise ValueError(f"{name}.t has no {old}")
            text = text.replace(old, new)
        test.write_text(text)


def end(process):
    """Ends the process group of a test: its servers, too."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(tree, name):
    """Returns the outcome of a test and its output."""
    with tempfile.TemporaryDirectory(prefix=f"kedge-{name}-", ignore_cleanup_errors=True) as directory:
        environment = {
            **os.environ,
            "KEDGE_TEST_DIR": directory,
            "PERL5OPT": f"-I{HERE} -MKedgeTest",
            "TMPDIR": directory,
        }
        with open(f"{directory}/output", "w+b") as output, open(f"{directory}/errors", "w+b") as errors:
            process = subprocess.Popen(
                ["perl", f"t/{name}.t"], cwd=tree, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
                start_new_session=True,
            )
            timed_out = False
            try:
                process.wait(SECONDS_PER_TEST)
            except subprocess.TimeoutExpired:
                timed_out = True
            code = process.poll() or 0
            end(process)
        read = lambda file: pathlib.Path(directory, file).read_text(errors="replace")
        refused = read("refused").splitlines() if os.path.exists(f"{directory}/refused") else []
        return outcome_of(read("output"), refused, timed_out, code), read("output"), read("errors")


def explain(name, expected, outcome, output, errors):
    print(f"FAILED {name}.t: {outcome.result()}; docs/compat.md: {expected}")
    lines = [line for line in output.splitlines() if line.startswith("not ok")] + errors.splitlines()
    for line in lines[:40]:
        print(f"    {line[:200]}")


def main(arguments):
    source = pathlib.Path(arguments[0])
    expected = table(PAGE.read_text(encoding="utf-8"))
    there = {test.stem for test in source.glob("t/*.t")}
    named = set(arguments[1:])
    wrong = 0
    for name in sorted(there ^ set(expected)) if not named else ():
        wrong += 1
        print(f"FAILED {name}.t: " + ("not in the table of docs/compat.md" if name in there else "in the table, but not a test"))
    names = sorted((named or there) & there)
    counts = dict.fromkeys(("pass", "differ", "skip", "not run"), 0)
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="kedge-memcached-") as directory:
        tree = pathlib.Path(directory)
        prepare(source, tree)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            runs = {name: pool.submit(run, tree, name) for name in names if expected.get(name) != NOT_RUN}
            for name in names:
                if name not in runs:
                    counts["not run"] += 1
                    continue
                outcome, output, errors = runs[name].result()
                passed += outcome.passed
                failed += len(outcome.failed)
                if outcome.result() != expected.get(name):
                    wrong += 1
                    explain(name, expected.get(name, "nothing"), outcome, output, errors)
                elif outcome.skipped:
                    counts["skip"] += 1
                else:
                    counts["pass" if outcome.result() == PASSES else "differ"] += 1
    print(
        f"memcached's own tests: {counts['pass']} pass, {counts['differ']} differ as listed, {counts['skip']} skip themselves,"
        f" {counts['not run']} not run, {wrong} unexpected; subtests: {passed} passed, {failed} failed"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
