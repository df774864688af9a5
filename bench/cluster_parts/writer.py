"""One writer of numbered keys, the same for all servers, and the client of Kedge that it uses."""

import itertools
import threading
import time

from cluster_parts.counting import Ack
from cluster_parts.wire import NOT_FOUND, SUCCESS, Connection, vbucket

# Between a refused write and the next: as long for each server.
RETRY_S = 0.001
# Longest wait for one response, and for all of a run's documents.
ANSWER_S, READ_BACK_S = 5, 60


class Writer:
    """A thread that writes one key after another until it is ended. `client.write` returns the port of the server that
    acknowledged, or None; a write without acknowledgement is not repeated, and its outcome is not known."""

    def __init__(self, client):
        self.acks, self.refused, self.failure = [], 0, None
        self._client, self._end = client, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        try:
            for number in itertools.count():
                if self._end.is_set():
                    return
                server = self._client.write(number)
                if server is None:
                    self.refused += 1
                    time.sleep(RETRY_S)
                else:
                    self.acks.append(Ack(number, time.perf_counter(), server))
        except Exception as failure:  # It is raised again in the benchmark's own thread.
            self.failure = failure

    def wait(self, what, seconds):
        """Asks `what` until it returns something, for so long; None then."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            if self.failure:
                raise self.failure
            if (answer := what()) is not None:
                return answer
            time.sleep(0.002)
        return None

    def __enter__(self):
        self._thread.start()
        if self.wait(lambda: len(self.acks) or None, READ_BACK_S) is None:
            self.__exit__()
            raise RuntimeError(f"no write was accepted within {READ_BACK_S} s")
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def numbered_key(number, vbuckets):
    """A key with the number and the smallest suffix that leads to one of the vBuckets."""
    keys = (f"write-{number}-{suffix}".encode() for suffix in itertools.count())
    return next(key for key in keys if vbucket(key) in vbuckets)


class KedgeClient:
    """Writes to a cluster with one connection to each node. A node that refuses is followed by the others, as an SDK does
    after a new map; nodes that are gone are tried as well. `key` makes the key of a number."""

    def __init__(self, nodes, key, level, first):
        self._ports = [node.ports[0] for node in nodes]
        self._key, self._level, self._first = key, level, first.ports[0]
        self._connections, self._actives = {}, {}

    def _ask(self, key, ask):
        """What `ask` returns of the first node for which that is not None, and its port; None, None without one."""
        vb = vbucket(key)
        likely = self._actives.get(vb, self._first)
        for port in [likely, *(port for port in self._ports if port != likely)]:
            try:
                if port not in self._connections:
                    self._connections[port] = Connection("127.0.0.1", port, timeout_s=ANSWER_S)
                answer = ask(self._connections[port])
            except OSError:
                if connection := self._connections.pop(port, None):
                    connection.close()
                continue
            if answer is not None:
                self._actives[vb] = port
                return answer, port
        return None, None

    def write(self, number):
        key = self._key(number)
        def store(connection):
            return True if connection.set(key, b"%d" % number, self._level) == SUCCESS else None
        return self._ask(key, store)[1]

    def _read(self, number):
        """The value, or None when there is no document; asked until an active node answers."""
        key, end = self._key(number), time.perf_counter() + ANSWER_S
        def fetch(connection):
            status, value = connection.get(key)
            return (value if status == SUCCESS else b"",) if status in (SUCCESS, NOT_FOUND) else None
        while time.perf_counter() < end:
            answer, _ = self._ask(key, fetch)
            if answer is not None:
                return answer[0]
            time.sleep(RETRY_S)
        raise RuntimeError(f"no node answers to a read of {key.decode()}")

    def found(self, numbers):
        """Those that have the value that was written."""
        end, found = time.perf_counter() + READ_BACK_S, []
        for number in numbers:
            if time.perf_counter() > end:
                raise RuntimeError(f"the documents were not read within {READ_BACK_S} s")
            if self._read(number) == b"%d" % number:
                found.append(number)
        return found

    def close(self):
        for connection in self._connections.values():
            connection.close()
