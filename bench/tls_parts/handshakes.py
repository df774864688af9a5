"""Handshakes and resumptions: the server's processor time for each, beside memcached."""

import socket
import ssl
import time

from harness import QUICK, median, only, say, table

from tls_parts.servers import Certificate, KedgeTls, MemcachedTls, client_context, memcached_has_tls

NAME, TITLE, BARS = "handshakes", "Handshakes", []
ROUNDS, CONNECTIONS = (1, 300) if QUICK else (5, 2_000)
VERSIONS = {"TLS 1.3": ssl.TLSVersion.TLSv1_3, "TLS 1.2": ssl.TLSVersion.TLSv1_2}
KINDS = ["full", "resumed"]
REQUEST = b"version\r\n"


def connect(port, context, session):
    """A connection with one request, whose reply comes behind the tickets of TLS 1.3. Returns the session to resume."""
    with socket.create_connection(("127.0.0.1", port), 30) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain, session=session) as connection:
            connection.sendall(REQUEST)
            if not connection.recv(100).startswith(b"VERSION"):
                raise RuntimeError("the server gave another reply than its version")
            return connection.session, connection.session_reused


def run(server, version, kind):
    """Connections one after another. Without TLS, the same take what is subtracted: accept, one request, close."""
    context = client_context()
    context.minimum_version = context.maximum_version = VERSIONS[version]
    only(server.process)
    session, _ = connect(server.memcached_tls_port, context, None)
    used, began, resumed = server.process.cpu_seconds(), time.perf_counter(), 0
    for _ in range(CONNECTIONS):
        newest, was_resumed = connect(server.memcached_tls_port, context, session if kind == "resumed" else None)
        resumed += was_resumed
        # A ticket is used once.
        session = newest or session
    seconds = time.perf_counter() - began
    cpu_us = (server.process.cpu_seconds() - used) * 1e6 / CONNECTIONS
    return {"per_s_of_one_client": CONNECTIONS / seconds, "server_cpu_us": cpu_us, "resumed": resumed / CONNECTIONS}


def measure():
    certificate = Certificate()
    kinds = {"kedge": KedgeTls, **({"memcached": MemcachedTls} if memcached_has_tls() else {})}
    samples = {}
    for turn in range(ROUNDS):
        say(f"{TITLE}: round {turn + 1} of {ROUNDS}")
        servers = {name: make(certificate) for name, make in kinds.items()}
        for version in VERSIONS:
            for kind in KINDS:
                for name in servers if turn % 2 == 0 else reversed(servers):
                    samples.setdefault(f"{version} {kind}", {}).setdefault(name, []).append(run(servers[name], version, kind))
        for server in servers.values():
            server.process.stop()
    return samples


def report(samples, _bars):
    rows = []
    for case, by_name in samples.items():
        for name, runs in by_name.items():
            cpu_us = median(each["server_cpu_us"] for each in runs)
            rate = median(each["per_s_of_one_client"] for each in runs)
            resumed = median(each["resumed"] for each in runs)
            rows.append([case, name, f"{cpu_us:.0f}", f"{1e6 / max(cpu_us, 1):,.0f}", f"{rate:,.0f}", f"{resumed:.0%}"])
    missing = "" if any("memcached" in by_name for by_name in samples.values()) else " The installed memcached has no TLS."
    return (
        f"{CONNECTIONS:,} connections one after another by one client (Python's ssl), each with one request, on the memcached port; "
        f"a certificate for ECDSA P-256, median of {ROUNDS} rounds.{missing}\n\n"
        + table(["handshake", "server", "server CPU us", "per s of one processor", "per s of one client", "resumed"], rows)
    )
