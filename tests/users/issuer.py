"""An issuer of tokens: keys, signatures, and a server of its keys."""

import base64
import http.server
import json
import pathlib
import shutil
import ssl
import subprocess
import tempfile
import threading
import time

from cryptography.hazmat.primitives import hashes, hmac
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

import kedge_server

NAME = "https://issuer.example.org"
AUDIENCE = "kedge"


def encode(data):
    if not isinstance(data, bytes):
        data = json.dumps(data).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value):
    return encode(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class Key:
    """A key pair for one algorithm."""

    def __init__(self, kid, algorithm="ES256"):
        self.kid, self.algorithm = kid, algorithm
        if algorithm == "ES256":
            self._private = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == "EdDSA":
            self._private = ed25519.Ed25519PrivateKey.generate()
        else:
            self._private = rsa.generate_private_key(65537, 2048)

    def public(self):
        """The JSON Web Key (RFC 7517)."""
        public = self._private.public_key()
        about = {"kid": self.kid, "use": "sig"}
        if self.algorithm == "ES256":
            numbers = public.public_numbers()
            x, y = (encode(part.to_bytes(32, "big")) for part in (numbers.x, numbers.y))
            return {**about, "kty": "EC", "crv": "P-256", "x": x, "y": y}
        if self.algorithm == "EdDSA":
            return {**about, "kty": "OKP", "crv": "Ed25519", "x": encode(public.public_bytes_raw())}
        numbers = public.public_numbers()
        return {**about, "kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}

    def sign(self, message):
        if self.algorithm == "ES256":
            r, s = utils.decode_dss_signature(self._private.sign(message, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        if self.algorithm == "EdDSA":
            return self._private.sign(message)
        if self.algorithm == "PS256":
            how = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        else:
            how = padding.PKCS1v15()
        return self._private.sign(message, how, hashes.SHA256())

    def token(self, header=None, **claims):
        """A token of the issuer, with other claims or parts of the header. `None` leaves a claim out."""
        now = int(time.time())
        all_claims = {"iss": NAME, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300, "groups": ["devs"], **claims}
        all_claims = {name: claim for name, claim in all_claims.items() if claim is not None}
        head = {"alg": self.algorithm, "typ": "JWT", "kid": self.kid, **(header or {})}
        message = f"{encode(head)}.{encode(all_claims)}"
        return f"{message}.{encode(self.sign(message.encode()))}"


def unsigned(header, key, secret=None):
    """A token without a signature, or with one by a shared secret."""
    claims = key.token().split(".")[1]
    message = f"{encode(header)}.{claims}"
    if secret is None:
        return f"{message}."
    by = hmac.HMAC(secret, hashes.SHA256())
    by.update(message.encode())
    return f"{message}.{encode(by.finalize())}"


class Keys:
    """Serves keys over https."""

    def __init__(self):
        self._home = pathlib.Path(tempfile.mkdtemp(prefix="kedge-issuer-"))
        for words in (["ca"], ["node", "issuer", "--host", "127.0.0.1"]):
            command = [str(kedge_server.binary()), "cert", *words, "--dir", str(self._home)]
            subprocess.run(command, check=True, capture_output=True)
        self.authority = (self._home / "ca.pem").read_text()
        self.keys, self.requests = [], 0
        keys = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                keys.requests += 1
                assert "Authorization" not in self.headers
                body = json.dumps({"keys": [key.public() for key in keys.keys]}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._home / "issuer.pem", self._home / "issuer-key.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.uri = f"https://127.0.0.1:{self._server.server_port}/keys"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        shutil.rmtree(self._home, ignore_errors=True)
