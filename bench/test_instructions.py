"""What `make bench-instructions` concludes from its counts."""

import json
import unittest

import instructions


class Comparison(unittest.TestCase):
    def test_only_a_rise_of_more_than_5_percent_is_a_failure(self):
        _, risen, to_commit = instructions.compare({"a": 1050, "b": 1051, "c": 950, "d": 949}, dict.fromkeys("abcd", 1000))
        self.assertEqual(risen, ["b takes 5.1% more instructions than committed"])
        self.assertEqual(to_commit, ["d takes 5.1% fewer instructions than committed"])

    def test_a_case_without_committed_figure_is_shown_and_is_no_failure(self):
        rows, risen, to_commit = instructions.compare({"new": 1234}, {})
        self.assertEqual((rows, risen), ([["new", "1,234", "-", "-"]], []))
        self.assertEqual(to_commit, ["new has no committed figure"])

    def test_every_case_has_a_committed_figure(self):
        self.assertEqual(list(json.loads(instructions.COMMITTED.read_text())), list(instructions.CASES))


class Profile(unittest.TestCase):
    def test_the_sum_of_a_profile_with_one_or_several_parts(self):
        for end in ("summary: 7 9\n\n\ntotals: 12 9\n", "totals: 12\n"):
            self.assertEqual(instructions.instructions("events: Ir\nfn=(1) main\n3 5\n" + end), 12)


if __name__ == "__main__":
    unittest.main()
