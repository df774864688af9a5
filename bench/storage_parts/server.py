"""A server that keeps its files under the benchmark's eyes: what it says of itself, what the kernel says of it."""

import functools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from harness import KEDGE
from node import Kedge
from parts import NotThere


@functools.cache
def _settings():
    done = subprocess.run([KEDGE, "config"], capture_output=True, text=True, check=True)
    return set(re.findall(r"^(\w+) = ", done.stdout, re.MULTILINE))


@functools.cache
def _commands():
    return subprocess.run([KEDGE, "--help"], capture_output=True, text=True, check=True).stdout


def need_settings(*names):
    for name in names:
        if name not in _settings():
            raise NotThere(f"no setting {name}")


def need_command(name):
    if not re.search(rf"^\s+{name}\b", _commands(), re.MULTILINE):
        raise NotThere(f"no command kedge {name}")


class Server(Kedge):
    """A server with settings, given as words: `commit_log=False`."""

    def __init__(self, data_dir, wait=True, name="kedge", quota="4GiB", **settings):
        more = []
        for setting, value in settings.items():
            more += [f"--{setting.replace('_', '-')}", str(value).lower() if isinstance(value, bool) else str(value)]
        self.data_dir = Path(data_dir)
        self.is_ending = False
        super().__init__(data_dir, wait, more, name, quota)

    def stop(self, how=signal.SIGTERM):
        self.is_ending = True
        return super().stop(how)

    def figure(self, *names):
        """The first of these statistics that there is."""
        stats = self.bucket_stats()
        for name in names:
            if name in stats:
                return stats[name]
        raise NotThere(f"no statistic {names[0]}")

    def timing(self, name):
        """A histogram: lists of lowest value, highest value, count."""
        document = self.ask(f"/kedge/timings/default/{name}")
        return document["buckets"] if document else []

    def wait_warm(self, seconds=300):
        """Until as much is in memory as is to be: nothing has come into it for a while."""
        last, since = None, time.monotonic()
        def holds(stats):
            nonlocal last, since
            if stats.get("ep_num_non_resident") != last:
                last, since = stats.get("ep_num_non_resident"), time.monotonic()
            return stats.get("ep_warmup_thread") == "complete" and time.monotonic() - since > 0.5
        return self.wait_for("the bucket is warm", holds, seconds)

    def io(self):
        """What the kernel counts for the process, in bytes."""
        lines = Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        return {name: int(count) for name, count in (line.split(": ") for line in lines)}


def mean_between(before, after):
    """The mean of what a histogram got between two looks, and how many that were. A value counts as the middle of its
    bucket, which is right to within a few percent."""
    counts = {(low, high): count for low, high, count in after}
    for low, high, count in before:
        counts[low, high] = counts.get((low, high), 0) - count
    number = sum(counts.values())
    total = sum((low + high) / 2 * count for (low, high), count in counts.items())
    return (total / number if number else 0.0), number


def files_below(path):
    return [entry for entry in Path(path).rglob("*") if entry.is_file()]


def bytes_below(path):
    """Bytes that the files below a directory take on the disk."""
    total = 0
    for entry in Path(path).rglob("*"):
        try:
            total += entry.stat().st_blocks * 512 if entry.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def device_written_bytes(path):
    """Bytes that were ever written to the disk below a directory, by anybody; what waits in memory is written first."""
    os.sync()
    device = os.stat(path).st_dev
    fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return int(fields[6]) * 512


class CachedFiles:
    """All files below a directory as they are now, to let the kernel forget what it has cached of them; what is not
    written yet stays. They are opened once, so that to forget them often takes little from what is measured."""

    def __init__(self, path):
        self._descriptors = []
        for entry in files_below(path):
            try:
                self._descriptors.append(os.open(entry, os.O_RDONLY))
            except FileNotFoundError:
                continue

    def forget(self):
        for descriptor in self._descriptors:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for descriptor in self._descriptors:
            os.close(descriptor)


class Repeat:
    """Does something again and again beside the benchmark, with a pause in between; `times` counts."""

    def __init__(self, work, pause_s=0.0):
        self.times, self.failure = 0, None
        self._work, self._pause_s, self._end = work, pause_s, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        while not self._end.is_set():
            try:
                self._work()
            except Exception as failure:  # It is raised again in the benchmark's own thread.
                self.failure = failure
                return
            self.times += 1
            self._end.wait(self._pause_s)

    def end(self):
        """Lets what is under way be the last."""
        self._end.set()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, *_):
        self.end()
        self._thread.join()
        if self.failure and kind is None:
            raise self.failure
