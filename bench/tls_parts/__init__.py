"""The parts of `make bench-tls`."""
