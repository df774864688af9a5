"""What `make bench-kv` makes of its samples."""

import math
import os
import unittest
from unittest import mock

import rivals
from harness import Bars, Steal
from kv_parts import cells, growth, memtier, pair, persisted, plain
from parts import NotThere


def runs(field, *values):
    return [{field: value} for value in values]


class Figures(unittest.TestCase):
    def test_a_ratio_is_taken_within_each_round(self):
        # The machine was twice as fast in the second round.
        self.assertEqual(cells.ratio(runs("ops", 12, 30, 10), runs("ops", 10, 20, 10), "ops"), 1.2)

    def test_rounds_without_a_partner_are_an_error(self):
        with self.assertRaises(ValueError):
            cells.ratio(runs("ops", 1, 2), runs("ops", 1), "ops")

    def test_the_better_rival_is_another_one_in_each_round(self):
        ours, rivals_runs = runs("x", 10, 10, 10), [runs("x", 5, 20, 8), runs("x", 10, 1, 4)]
        self.assertEqual(cells.ratio_to_best(ours, rivals_runs, "x", max), 1.0)
        self.assertEqual(cells.ratio_to_best(ours, rivals_runs, "x", min), 2.5)

    def test_processor_time_before_the_measured_seconds_does_not_count(self):
        used = cells.ProcessorTime(None)
        # A second of logins, then two seconds with half a processor.
        used.samples = [(10.0, 5.0), (11.0, 6.0), (13.0, 7.0)]
        self.assertEqual(used.of_the_last(2.0), 1.0)
        self.assertEqual(used.of_the_last(1.0), 0.5)
        self.assertEqual(used.of_the_last(math.inf), 2.0)

    def test_steal_is_a_share_of_all_processors(self):
        counts = iter([{"total": 1000, "idle": 0, "steal": 10}, {"total": 1200, "idle": 0, "steal": 15}])
        with mock.patch("harness._cpu", lambda: next(counts)):
            self.assertEqual(Steal().share(), 0.025)


def run(ops, p99=100, cpu=10):
    return {"ops_per_s": ops, "p99_us": p99, "server_cpu_us_per_op": cpu}


class PlainBars(unittest.TestCase):
    def bars(self, **kedge):
        targets = {target: [run(100)] for target in pair.TARGETS} | {name: [each] for name, each in kedge.items()}
        bars = Bars()
        plain.set_bars(512, {case: targets for case in plain.CASES}, bars)
        return {row["name"]: row for row in bars.rows}

    def test_bars_are_those_that_are_announced(self):
        announced = [bar for bar in plain.BARS if "_512b_" in bar[0]]
        rows = self.bars().values()
        self.assertEqual([(row["name"], row["sign"], row["limit"], row["unit"]) for row in rows], announced)
        self.assertEqual(len(plain.BARS), len(announced) * len(plain.SIZES))

    def test_the_binary_bar_is_of_the_worse_port(self):
        rows = self.bars(kedge_binary=run(150, p99=80, cpu=9), kedge_kv=run(130, p99=110, cpu=8))
        figures = [rows[f"get_binary_512b_{name}"]["measured"] for name in ("ops", "p99", "cpu")]
        self.assertEqual(figures, [1.3, 1.1, 0.9])
        self.assertEqual(rows["get_text_512b_ops"]["measured"], 1.0)

    def test_verdicts(self):
        rows = self.bars(kedge_text=run(120, p99=100, cpu=8.6))
        verdicts = [rows[f"get_text_512b_{name}"]["ok"] for name in ("ops", "p99", "cpu")]
        self.assertEqual(verdicts, [True, True, False])
        bars = Bars()
        bars.rows = [rows["get_text_512b_ops"], rows["get_text_512b_cpu"]]
        self.assertEqual([line.split()[-1] for line in bars.lines()], ["met", "MISSED"])


class PersistedBars(unittest.TestCase):
    def test_one_connection_is_compared_with_each_rival_and_more_with_the_better(self):
        samples = {}
        for count in persisted.CONNECTIONS:
            samples["kedge", count] = [run(130, p99=90, cpu=9)]
            samples["redis", count] = [run(100, p99=100, cpu=20)]
            samples["valkey", count] = [run(50, p99=200, cpu=10)]
        bars = Bars()
        persisted.set_bars(samples, ["redis", "valkey"], bars)
        measured = {row["name"]: row["measured"] for row in bars.rows}
        self.assertEqual((measured["persisted_1_ops_vs_redis"], measured["persisted_1_ops_vs_valkey"]), (1.3, 2.6))
        self.assertEqual([measured[f"persisted_500_{name}"] for name in ("ops", "p99", "cpu")], [1.3, 0.9, 0.9])


class GrowthBars(unittest.TestCase):
    def test_growth_is_from_the_fewest_to_the_most_items(self):
        def cases(kedge, memcached):
            each = {"kedge_kv": [run(1, cpu=kedge)], "memcached_binary": [run(1, cpu=memcached)]}
            return {case: each for case in growth.CASES}

        bars = Bars()
        growth.set_bars({1_000_000: cases(9, 9), 100_000: cases(1, 2), 10_000_000: cases(1.5, 2.5)}, bars)
        self.assertEqual([row["name"] for row in bars.rows], [name for name, *_ in growth.BARS])
        self.assertEqual([row["measured"] for row in bars.rows], [1.5, 1.2] * 2)
        self.assertEqual([row["ok"] for row in bars.rows], [False, False, True, False])


class Memtier(unittest.TestCase):
    def test_its_milliseconds_are_our_microseconds(self):
        totals = {
            "Count": 3000, "Ops/sec": 1500.0, "Misses/sec": 2.5, "Connection Errors": 1,
            "Percentile Latencies": {"p50.00": 0.2, "p99.00": 12.0, "p99.90": 17.5},
        }
        ours = memtier.named({"ALL STATS": {"Runtime": {"Total duration": 2000}, "Totals": totals}})
        expected = {
            "ops": 3000, "ops_per_s": 1500.0, "errors": 1, "misses": 5, "p50_us": 200.0, "p99_us": 12000.0,
            "p999_us": 17500.0,
        }
        self.assertEqual(ours, expected)

    def test_a_missing_generator_is_named_with_the_variable_of_its_path(self):
        with mock.patch("rivals.binary", lambda *_: None), self.assertRaisesRegex(NotThere, "KEDGE_BENCH_MEMTIER"):
            memtier.generator()


class Rivals(unittest.TestCase):
    def test_a_given_path_is_used_and_has_to_be_a_program(self):
        with mock.patch.dict(os.environ, KEDGE_BENCH_VALKEY="/bin/sh"):
            self.assertEqual(rivals.binary("valkey", "valkey-server"), "/bin/sh")
        with mock.patch.dict(os.environ, KEDGE_BENCH_VALKEY="/nonexistent"), self.assertRaisesRegex(SystemExit, "no program"):
            rivals.binary("valkey", "valkey-server")


if __name__ == "__main__":
    unittest.main()
