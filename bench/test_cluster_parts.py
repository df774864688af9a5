"""What the parts of the cluster benchmark conclude from what they observe."""

import io
import unittest

from cluster_parts import counting
from cluster_parts.counting import Ack
from cluster_parts.nodes import with_flags
from cluster_parts.sentinel import Refused, read_reply
from cluster_parts.wire import chains_of, vbucket
from cluster_parts.writer import numbered_key

OLD, NEW, OTHER = 1, 2, 3


class Percentiles(unittest.TestCase):
    def test_a_percentile_is_a_measured_value(self):
        for values, share, expected in (
            (range(1, 21), 0.99, 20), (range(1, 21), 0.95, 19), (range(1, 101), 0.99, 99), (range(1, 101), 0.07, 7),
            (range(1, 201), 0.99, 198), ([3, 1, 2], 0.5, 2), ([5], 0.99, 5), ([5, 4], 0, 4),
        ):
            self.assertEqual(counting.percentile(values, share), expected, (list(values), share))


class LostWrites(unittest.TestCase):
    def test_acknowledged_writes_that_are_not_found_are_lost_whatever_their_order(self):
        acks = [Ack(5, 2.0, NEW), Ack(0, 1.0, OLD), Ack(3, 1.4, OLD), Ack(2, 1.3, OLD)]
        self.assertEqual(counting.lost_writes(acks, {0, 5}), [2, 3])

    def test_found_writes_without_acknowledgement_are_no_loss(self):
        self.assertEqual(counting.lost_writes([Ack(1, 1.0, OLD)], {0, 1, 2}), [])

    def test_a_write_that_was_acknowledged_twice_is_lost_once(self):
        self.assertEqual(counting.lost_writes([Ack(1, 2.0, NEW), Ack(1, 1.0, OLD)], set()), [1])


class FirstAccepted(unittest.TestCase):
    def test_late_responses_of_the_killed_server_do_not_count(self):
        acks = [Ack(3, 12.5, NEW), Ack(0, 9.0, OLD), Ack(1, 10.1, OLD), Ack(4, 12.25, OTHER)]
        self.assertEqual(counting.first_accepted(acks, 10.0, OLD), 2.25)

    def test_writes_before_the_kill_do_not_count(self):
        self.assertIsNone(counting.first_accepted([Ack(0, 9.0, OTHER)], 10.0, OLD))


class Pauses(unittest.TestCase):
    def test_a_pause_is_between_the_last_write_of_one_node_and_the_first_of_the_other(self):
        acks = [Ack(4, 1.5, NEW), Ack(0, 1.0, OLD), Ack(5, 1.6, NEW), Ack(1, 1.25, OLD)]
        self.assertEqual(counting.pause(acks, NEW), 0.25)

    def test_there_is_no_pause_before_both_nodes_have_accepted(self):
        self.assertIsNone(counting.pause([Ack(0, 1.0, OLD)], NEW))
        self.assertIsNone(counting.pause([Ack(0, 1.0, NEW)], NEW))


class Samples(unittest.TestCase):
    LINES = ["2000000 1500\n", "1000000 500 unambiguous timeout\n", "3000000 250\n"]

    def test_phases_are_of_requests_that_were_due_in_them(self):
        samples = counting.samples_of(self.LINES)
        self.assertEqual(counting.latencies(counting.window(samples, 1.0, 3.0)), [1.5])
        self.assertEqual(counting.latencies(counting.window(samples, 2.0, 3.1)), [1.5, 0.25])

    def test_errors_are_counted_by_kind(self):
        samples = counting.samples_of([*self.LINES, *self.LINES])
        self.assertEqual(counting.errors(samples), {"unambiguous timeout": 2})


class Moves(unittest.TestCase):
    # Six vBuckets with one replica on three nodes.
    BEFORE = [[1, 2], [1, 3], [2, 3], [2, 1], [3, 1], [3, 2]]

    def test_only_nodes_without_a_copy_get_one(self):
        after = [[2, 1], [1, 4], *self.BEFORE[2:]]
        self.assertEqual(counting.new_copies(self.BEFORE, after), 1)
        self.assertEqual(counting.new_actives(self.BEFORE, after), 1)
        self.assertEqual(counting.new_copies([[1, None]], [[1, 2]]), 1)
        self.assertEqual(counting.new_copies([[1, 2]], [[2, None]]), 0)

    def test_a_copy_that_moves_twice_counts_twice(self):
        self.assertEqual(counting.steps([[[1, 2]], [[1, 3]], [[1, 2]]], counting.new_copies), 2)

    def test_fewest_moves_fill_the_new_node(self):
        self.assertEqual(counting.fewest_moves(self.BEFORE, [1, 2, 3]), 0)
        self.assertEqual(counting.fewest_moves(self.BEFORE, [1, 2, 3, 4]), 3)
        # Six actives for four nodes: two keep one more than the new node gets.
        actives = [chain[:1] for chain in self.BEFORE]
        self.assertEqual(counting.fewest_moves(actives, [1, 2, 3, 4]), 1)
        # A node without a place in the new list gives everything.
        self.assertEqual(counting.fewest_moves(self.BEFORE, [1, 2]), 4)

    def test_even_shares_are_of_copies_and_of_actives(self):
        self.assertTrue(counting.is_even(self.BEFORE, [1, 2, 3]))
        self.assertFalse(counting.is_even(self.BEFORE, [1, 2, 3, 4]))
        self.assertFalse(counting.is_even([[1, 2], [1, 2]], [1, 2]))
        self.assertFalse(counting.is_even([[1, None], [2, 1]], [1, 2]))


class Words(unittest.TestCase):
    def test_flags_are_replaced_in_both_forms_and_added(self):
        words = ["kedge", "serve", "--kv-port", "1", "--data-dir=/a", "--stop-with-parent"]
        self.assertEqual(
            with_flags(words, kv_port=2, data_dir="/b", node_name="n"),
            ["kedge", "serve", "--stop-with-parent", "--kv-port", "2", "--data-dir", "/b", "--node-name", "n"],
        )

    def test_numbered_keys_are_in_the_wanted_vbuckets(self):
        keys = {numbered_key(number, {7, 8}) for number in range(10)}
        self.assertEqual((len(keys), {vbucket(key) for key in keys} - {7, 8}), (10, set()))

    def test_chains_of_a_configuration_are_of_ports(self):
        config = {"vBucketServerMap": {"serverList": ["$HOST:11", "$HOST:22"], "vBucketMap": [[1, 0], [0, -1]]}}
        self.assertEqual(chains_of(config), [[22, 11], [11, None]])


class Responses(unittest.TestCase):
    def test_responses_of_redis_are_parsed(self):
        file = io.BytesIO(b"+OK\r\n:2\r\n*2\r\n$3\r\na\r\n\r\n$-1\r\n-READONLY no\r\n:1")
        self.assertEqual([read_reply(file) for _ in range(3)], [b"OK", 2, [b"a\r\n", None]])
        with self.assertRaisesRegex(Refused, "READONLY no"):
            read_reply(file)
        with self.assertRaises(ConnectionError):
            read_reply(file)


if __name__ == "__main__":
    unittest.main()
