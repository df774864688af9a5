#!/usr/bin/env python3
"""make bench-tls: what TLS costs.

Parts, each in a file of `tls_parts/`; `python3 bench/tls.py PART...` runs some of them and writes no results:
requests     the server's processor time per request, with and without TLS
handshakes   full and resumed handshakes, beside memcached if it was built with TLS

QUICK=1 is a run under two minutes. See bench/README.md for what is measured and how.
"""

import parts
from harness import build
from tls_parts import handshakes, requests


def prepare(_wanted):
    build()


if __name__ == "__main__":
    parts.main("tls", "TLS: make bench-tls", [requests, handshakes], __doc__, prepare)
