"""What became of writes, requests and copies, as functions of what was observed."""

import math
from collections import Counter
from typing import NamedTuple


class Ack(NamedTuple):
    """An acknowledged write: its number, the time of the response, and the port of the server that sent it."""

    number: int
    at: float
    server: int


class Sample(NamedTuple):
    """A request of the SDK's generator: when it was due, in seconds since 1970, its latency, and its error or nothing."""

    due: float
    latency_ms: float
    error: str


def percentile(values, share):
    """The smallest value that is not exceeded by this share of all (nearest rank)."""
    ordered = sorted(values)
    # 0.07 * 100 is a little more than 7.
    return ordered[max(math.ceil(round(share * len(ordered), 9)), 1) - 1]


def first_accepted(acks, killed_at, lost_server):
    """Seconds from the kill to the first acknowledgement of another server; None without one. What the killed server had
    sent before its end may be read after it, and does not count."""
    after = [ack.at - killed_at for ack in acks if ack.at >= killed_at and ack.server != lost_server]
    return min(after, default=None)


def lost_writes(acks, found):
    """The numbers of acknowledged writes that are not among the found ones, in order."""
    return sorted({ack.number for ack in acks} - set(found))


def pause(acks, target):
    """Seconds between the last acknowledgement before those of `target` and its first one; None without either."""
    resumed = min((ack.at for ack in acks if ack.server == target), default=None)
    if resumed is None:
        return None
    stopped = max((ack.at for ack in acks if ack.server != target and ack.at <= resumed), default=None)
    return None if stopped is None else resumed - stopped


def samples_of(lines):
    """The samples of the generator's file: due time and latency in microseconds, and the error."""
    samples = []
    for line in lines:
        due, latency, *error = line.rstrip("\n").split(" ", 2)
        samples.append(Sample(int(due) / 1e6, int(latency) / 1e3, error[0] if error else ""))
    return samples


def window(samples, begin, end):
    """Those that were due between two times."""
    return [sample for sample in samples if begin <= sample.due < end]


def latencies(samples):
    return [sample.latency_ms for sample in samples if not sample.error]


def errors(samples):
    """Counts of errors, by kind."""
    return dict(Counter(sample.error for sample in samples if sample.error))


def new_copies(before, after):
    """Copies of vBuckets on nodes that had none before. A map is a list of chains of nodes; None is a missing copy."""
    return sum(len({*now} - {*then, None}) for then, now in zip(before, after))


def new_actives(before, after):
    """vBuckets with another active node."""
    return sum(then[0] != now[0] for then, now in zip(before, after))


def steps(maps, count):
    """Adds up what changes from each map to the next."""
    return sum(count(then, now) for then, now in zip(maps, maps[1:]))


def fewest_moves(chains, nodes):
    """The smallest number of copies that must move so that all nodes have as many, rounded down or up."""
    have = Counter(node for chain in chains for node in chain if node is not None)
    floor, over = divmod(sum(have.values()), len(nodes))
    # The nodes that have the most keep what is over.
    counts = sorted((have[node] for node in nodes), reverse=True)
    return sum(max(floor + (at < over) - count, 0) for at, count in enumerate(counts))


def is_even(chains, nodes):
    """Whether the nodes have as many copies and as many actives as each other, up to one."""
    for part in (chains, [chain[:1] for chain in chains]):
        have = Counter(node for chain in part for node in chain)
        counts = [have[node] for node in nodes]
        if None in have or max(counts) - min(counts) > 1:
            return False
    return True
