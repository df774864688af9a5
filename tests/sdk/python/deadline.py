"""Waits for what a test cannot be told of."""

import time

SECONDS = 60


def until(condition, what):
    """Asks again and again until `condition()` is true; fails after SECONDS."""
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {SECONDS} s: {what}")
        time.sleep(0.05)
