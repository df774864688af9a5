"""A scan of the ports with TLS by sslyze: old versions, weak cipher suites, and known attacks."""

import json
import socket
import ssl
import subprocess
import sys

import pytest

import kedge_server

# Forward secrecy, and authenticated encryption.
TLS_1_2 = {
    f"TLS_ECDHE_ECDSA_WITH_{cipher}"
    for cipher in ("AES_256_GCM_SHA384", "AES_128_GCM_SHA256", "CHACHA20_POLY1305_SHA256")
}
TLS_1_3 = {"TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}

# Commands of sslyze.
SCANS = (
    "sslv2", "sslv3", "tlsv1", "tlsv1_1", "tlsv1_2", "tlsv1_3", "heartbleed", "openssl_ccs", "robot", "reneg", "compression",
    "fallback", "early_data", "ems", "resum", "elliptic_curves",
)


@pytest.fixture(scope="module")
def server():
    started = kedge_server.Server(tls=True)
    try:
        yield started.start()
    finally:
        started.remove()


@pytest.fixture(scope="module")
def scans(server, tmp_path_factory):
    """The results of sslyze for each port, by port: the result of each command, by its name."""
    ports = (server.kv_tls_port, server.mgmt_tls_port, server.memcached_tls_port)
    report = tmp_path_factory.mktemp("sslyze") / "report.json"
    command = [sys.executable, "-m", "sslyze", "--json_out", str(report), "--mozilla_config", "disable"]
    command += (f"--{name}" for name in SCANS)
    subprocess.run([*command, *(f"127.0.0.1:{port}" for port in ports)], check=True, timeout=500, capture_output=True)
    results = json.loads(report.read_text())["server_scan_results"]
    found = {}
    for result in results:
        assert result["scan_status"] == "COMPLETED", result["connectivity_error_trace"]
        found[result["server_location"]["port"]] = result["scan_result"]
    assert set(found) == set(ports)
    return found


def results(scans, name):
    """The results of one command for each port. It must have run."""
    for port, scan in scans.items():
        attempt = scan[name]
        assert attempt["status"] == "COMPLETED", f"{port}: {name}: {attempt['error_trace']}"
        yield port, attempt["result"]


def accepted(result):
    return {suite["cipher_suite"]["name"] for suite in result["accepted_cipher_suites"]}


@pytest.mark.parametrize("version", ["ssl_2_0", "ssl_3_0", "tls_1_0", "tls_1_1"])
def test_old_versions_are_refused(scans, version):
    for port, result in results(scans, f"{version}_cipher_suites"):
        assert not accepted(result), port


@pytest.mark.parametrize(("version", "suites"), [("tls_1_2", TLS_1_2), ("tls_1_3", TLS_1_3)])
def test_cipher_suites_are_strong_ones(scans, version, suites):
    for port, result in results(scans, f"{version}_cipher_suites"):
        assert accepted(result) == suites, port


@pytest.mark.parametrize(
    ("command", "field", "wanted"),
    [
        ("heartbleed", "is_vulnerable_to_heartbleed", False),
        ("openssl_ccs_injection", "is_vulnerable_to_ccs_injection", False),
        ("robot", "robot_result", "NOT_VULNERABLE_RSA_NOT_SUPPORTED"),
        ("session_renegotiation", "is_vulnerable_to_client_renegotiation_dos", False),
        ("session_renegotiation", "supports_secure_renegotiation", True),
        ("tls_compression", "supports_compression", False),
        ("tls_fallback_scsv", "supports_fallback_scsv", True),
        ("tls_extended_master_secret", "supports_ems_extension", True),
    ],
)
def test_known_attacks_do_not_succeed(scans, command, field, wanted):
    for port, result in results(scans, command):
        assert result[field] == wanted, port


def test_early_data_is_refused(server, scans):
    # The scan sends a request of HTTP, for which the other ports close the connection.
    attempt = scans[server.mgmt_tls_port]["tls_1_3_early_data"]
    assert attempt["status"] == "COMPLETED", attempt["error_trace"]
    assert attempt["result"]["supports_early_data"] is False


def test_sessions_are_resumed_by_their_number(scans):
    for port, result in results(scans, "session_resumption"):
        assert result["session_id_resumption_result"] == "FULLY_SUPPORTED", port


def test_sessions_are_resumed_by_tickets(server):
    context = ssl.create_default_context(cafile=server.certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def connect(session=None):
        raw = socket.create_connection(("127.0.0.1", server.kv_tls_port), timeout=60)
        return context.wrap_socket(raw, server_hostname="127.0.0.1", session=session)

    with connect() as first:
        assert not first.session_reused
        assert first.session.has_ticket
        with connect(first.session) as second:
            assert second.session_reused


def test_curves_are_strong_ones(scans):
    for port, result in results(scans, "elliptic_curves"):
        names = {curve["name"] for curve in result["supported_curves"]}
        assert names == {"X25519", "secp256r1", "secp384r1"}, port
