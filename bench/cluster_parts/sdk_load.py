"""The generator that is made of the vendor's SDK: it follows the map, and its errors are what applications see."""

import subprocess
import time

from harness import ROOT, WORK, Process, need, say
from node import PASSWORD, USER

from cluster_parts.counting import errors, latencies, percentile, samples_of, window
from cluster_parts.nodes import first_line

# Requests per second, percent of SETs, and requests that may be in flight at a time.
RATE, SET_PCT, CLIENTS, VALUE_BYTES = 5000, 50, 64, 256


def build():
    go = need("go", "golang-go")
    subprocess.run([go, "build", "-o", WORK / "sdk_load", "."], cwd=ROOT / "bench" / "sdk_load", check=True)


class SdkLoad:
    """Requests at a fixed rate from now until `end`, which returns the samples."""

    def __init__(self, cluster, items):
        self._file = WORK / "sdk_load.samples"
        self._file.unlink(missing_ok=True)
        host = ",".join(f"127.0.0.1:{node.ports[0]}" for node in cluster.nodes)
        self._process = Process("sdk_load", [
            WORK / "sdk_load", "-url", f"couchbase://{host}", "-user", USER, "-password", PASSWORD, "-num-items", items,
            "-size", VALUE_BYTES, "-set-pct", SET_PCT, "-rate", RATE, "-clients", CLIENTS, "-samples", self._file,
        ], stdout=subprocess.PIPE)
        first_line(self._process, "ready", 60)
        self.began = time.time()

    def end(self):
        if self._process.stop() != 0:
            raise RuntimeError(self._process.complaint())
        with open(self._file) as lines:
            samples = samples_of(lines)
        self._file.unlink()
        if kinds := errors(samples):
            say(f"  {kinds}")
        return samples


def figures(samples, begin, end):
    """Of the requests that were due in between."""
    part = window(samples, begin, end)
    times = latencies(part)
    if not times:
        raise RuntimeError("the generator had no answer in a whole phase")
    return {
        "seconds": end - begin, "ops": len(part), "errors_by_kind": errors(part), "errors": len(part) - len(times),
        "p50_ms": percentile(times, 0.5), "p99_ms": percentile(times, 0.99), "p999_ms": percentile(times, 0.999),
        "max_ms": max(times),
    }


def row(name, phase):
    """A row of a table with the columns of HEAD."""
    times = (f"{phase[field]:.2f}" for field in ("p50_ms", "p99_ms", "p999_ms", "max_ms"))
    return [name, f"{phase['seconds']:.1f}", f"{phase['ops'] / phase['seconds']:,.0f}", *times, phase["errors"]]


HEAD = ["phase", "seconds", "ops/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "errors"]
