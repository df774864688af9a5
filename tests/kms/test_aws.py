"""Master keys in AWS KMS."""

import base64
import http.server
import json
import threading

import pytest

import aws
import deadline

UNKNOWN = f"arn:aws:kms:{aws.REGION}:123456789012:key/00000000-0000-0000-0000-000000000000"


@pytest.fixture
def up(service):
    """The service, which runs again after the test."""
    yield service
    service.start()


def test_first_start_creates_a_wrapped_key_and_a_restart_unwraps_it(service, kedge):
    key = service.key()
    server = kedge(**service.credentials).serve(service.source(key))
    server.set("document", "the content of a document")
    status = server.status()
    assert (status["enabled"], status["masterKey"]) == (True, f"awskms:{key}")
    assert f"master key      awskms:{key} from awskms:{key}\n" in server.tool("encryption", "status")
    assert "the master key works" in server.tool("encryption", "test-key")
    name, wrapped = server.wrapped_key()
    assert name == f"awskms:{key}"
    about = server.master_key()
    assert (about["id"], about["type"], about["error"]) == (1, "awskms-symmetric-key", None)
    assert (about["data"]["keyARN"], about["data"]["region"]) == (key, aws.REGION)
    assert server.terminate() == 0
    assert not server.has_on_disk("the content of a document")
    server.serve(service.source(key))
    assert server.get("document") == "the content of a document"
    # A check at the start, and the key of the bucket's keyring.
    assert server.admin.metric("kedge_master_key_requests") == 3
    assert server.admin.metric("kedge_master_key_failures") == 0
    assert server.wrapped_key() == (name, wrapped)
    secret = service.kms.decrypt(CiphertextBlob=wrapped, EncryptionContext=aws.CONTEXT)["Plaintext"]
    assert len(secret) == 32
    for text in (secret.hex(), base64.b64encode(secret).decode(), service.secret):
        assert text not in server.stderr()
        assert not server.has_on_disk(text)


def test_id_and_alias_are_resolved_to_the_key(service, kedge):
    key = service.key()
    service.kms.create_alias(AliasName="alias/kedge-test", TargetKeyId=key)
    server = kedge(**service.credentials)
    for name in (key.split("/")[1], "alias/kedge-test", key):
        server.serve(service.source(name))
        assert server.status()["masterKey"] == f"awskms:{key}"
        assert server.terminate() == 0
    # The region of an ARN needs no other setting.
    server.environment["AWS_ENDPOINT_URL_KMS"] = service.url
    server.serve(f"awskms:{key}")


def test_wrong_credentials_are_a_clear_error(service, kedge):
    key = service.source(service.key())
    server = kedge(**{**service.credentials, "AWS_SECRET_ACCESS_KEY": "wrong-secret"})
    refusal = server.refusal(key, wait="60s")
    assert "cannot be used" in refusal and "SignatureDoesNotMatch" in refusal, refusal
    assert "wrong-secret" not in refusal
    server.environment.update(AWS_ACCESS_KEY_ID="AKIAUNKNOWN", AWS_SECRET_ACCESS_KEY="s")
    assert "InvalidClientTokenId" in server.refusal(key, wait="60s")
    del server.environment["AWS_ACCESS_KEY_ID"]
    assert "no credentials in the environment" in server.refusal(key, wait="60s")


def test_disabled_and_unknown_keys_are_clear_errors(service, kedge):
    key = service.key()
    server = kedge(**service.credentials)
    assert "NotFoundException" in server.refusal(service.source(UNKNOWN), wait="60s")
    server.serve(service.source(key)).terminate()
    service.enable(key, False)
    refusal = server.refusal(service.source(key), wait="60s")
    assert f"awskms:{key} cannot be used: DisabledException" in refusal
    service.enable(key, True)
    server.serve(service.source(key))


def test_start_waits_for_a_service_that_is_down_and_not_forever(up, kedge):
    key = up.source(up.key())
    server = kedge(**up.credentials)
    server.serve(key).terminate()
    up.stop()
    refusal = server.refusal(key, wait="1s")
    assert "is unavailable: cannot connect to 127.0.0.1" in refusal
    assert "is asked again" in refusal
    log = len(server.stderr())
    start = threading.Thread(target=server.serve, args=(key,))
    start.start()
    deadline.until(lambda: "is asked again" in server.stderr()[log:], "the start waits")
    up.start()
    start.join(deadline.SECONDS)
    assert server.status()["enabled"]


def test_running_server_does_not_need_the_service(up, kedge):
    server = kedge(**up.credentials).serve(up.source(up.key()))
    server.set("before", "1")
    up.stop()
    server.set("after", "2")
    assert (server.get("before"), server.get("after")) == ("1", "2")
    before = server.keyring()
    server.tool("encryption", "rotate")
    assert server.keyring() != before
    # What needs it fails, and nothing else.
    reply = server.admin.request("POST", "/settings/encryptionKeys/1/test")
    assert (reply.status, "is unavailable" in reply.body) == (503, True), reply.body
    bucket = {"name": "second", "ramQuota": "100", "encryptionAtRestKeyId": "1"}
    reply = server.admin.request("POST", "/pools/default/buckets", bucket)
    assert reply.status >= 400 and "is unavailable" in reply.body + server.stderr()
    name, wrapped = server.wrapped_key()
    reply = server.admin.request("POST", "/controller/rotateEncryptionKey/1")
    assert (reply.status, "tried again" in reply.body) == (503, True), reply.body
    assert server.wrapped_key() == (name, wrapped)
    assert server.admin.metric("kedge_master_key_failures") > 0
    deadline.until(lambda: "is unavailable" in (server.status()["error"] or ""), "the status has the error")
    # The rotation is made when the service is back.
    up.start()
    deadline.until(lambda: server.wrapped_key()[1] != wrapped, "the data keys are wrapped again")
    deadline.until(lambda: server.status()["error"] is None, "the error is over")
    assert server.get("after") == "2"


def test_rotation_wraps_the_keys_again(service, kedge):
    first, second = service.key(), service.key()
    server = kedge(**service.credentials).serve(service.source(first))
    server.set("document", "content")
    name, wrapped = server.wrapped_key()
    assert "again" in server.tool("encryption", "rewrap")
    assert server.wrapped_key()[0] == name
    assert server.wrapped_key()[1] != wrapped
    assert server.terminate() == 0
    # Another key needs the one before once.
    refusal = server.refusal(service.source(second))
    assert f"wrapped by the master key awskms:{first}, and the given one is awskms:{second}" in refusal
    server.serve(service.source(second), previous=service.source(first))
    assert server.wrapped_key()[0] == f"awskms:{second}"
    assert server.terminate() == 0
    service.enable(first, False)
    server.serve(service.source(second))
    assert server.get("document") == "content"


def test_master_key_moves_from_a_file_to_the_service_and_back(service, kedge):
    key = service.source(service.key())
    server = kedge(**service.credentials)
    secret = "5a" * 32
    (server.directory / "master.key").write_text(secret)
    file = f"file:{server.directory / 'master.key'}"
    server.serve(file)
    server.set("document", "content")
    assert server.status()["masterKeySource"] == file
    for source, previous, start in ((key, file, "awskms:"), (key, None, "awskms:"), (file, key, "local:"), (file, None, "local:")):
        assert server.terminate() == 0
        server.serve(source, previous)
        assert server.wrapped_key()[0].startswith(start)
        assert server.get("document") == "content"
    assert secret not in server.stderr()


def test_credentials_of_a_profile(service, kedge):
    key = service.key()
    server = kedge()
    (server.directory / ".aws").mkdir()
    credentials = f"aws_access_key_id = {service.id}\naws_secret_access_key = {service.secret}\n"
    (server.directory / ".aws/credentials").write_text(f"[default]\naws_access_key_id = X\n[kedge]\n{credentials}")
    (server.directory / ".aws/config").write_text(f"[profile kedge]\nregion = {aws.REGION}\n")
    server.serve(f"awskms:{key.split('/')[1]}?endpoint={service.url}&profile=kedge").terminate()
    server.environment["AWS_PROFILE"] = "kedge"
    server.serve(service.source(key)).terminate()
    assert "the profile other has no aws_access_key_id" in server.refusal(service.source(key, profile="other"))


class Metadata:
    """The metadata service of an instance, and the agent of a container."""

    TOKEN, ROLES = "/latest/api/token", "/latest/meta-data/iam/security-credentials/"

    def __init__(self, service):
        document = {"Code": "Success", "AccessKeyId": service.id, "SecretAccessKey": service.secret, "Token": None}
        replies = {
            ("PUT", self.TOKEN, None): "session",
            ("GET", self.ROLES, "session"): "role-of-kedge\n",
            ("GET", self.ROLES + "role-of-kedge", "session"): json.dumps(document),
            ("GET", "/agent", "of-the-pod"): json.dumps(document),
        }

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                token = self.headers.get("X-aws-ec2-metadata-token") or self.headers.get("Authorization")
                body = replies.get((self.command, self.path, token))
                self.send_response(200 if body else 401)
                self.end_headers()
                self.wfile.write((body or "").encode())

            do_GET = do_PUT = answer

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def test_credentials_of_an_instance_and_of_a_container(service, kedge):
    key = service.key()
    metadata = Metadata(service)
    try:
        server = kedge(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=metadata.url)
        server.serve(service.source(key)).terminate()
        server.environment.update(AWS_ACCESS_KEY_ID="wrong", AWS_SECRET_ACCESS_KEY="wrong")
        server.serve(service.source(key, useIMDS="true")).terminate()
        (server.directory / "token").write_text("of-the-pod\n")
        server.environment = {
            "HOME": "/nonexistent",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{metadata.url}/agent",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(server.directory / "token"),
        }
        server.serve(service.source(key)).terminate()
        server.environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = "http://example.org/agent"
        assert "neither https nor the agent" in server.refusal(service.source(key))
    finally:
        metadata.close()


def test_credentials_of_a_web_identity(service, kedge):
    key = service.source(service.key())
    server = kedge(AWS_ROLE_ARN="arn:aws:iam::123456789012:role/kedge", AWS_ENDPOINT_URL_STS=service.url)
    (server.directory / "token").write_text("a.token.of-kubernetes")
    server.environment["AWS_WEB_IDENTITY_TOKEN_FILE"] = str(server.directory / "token")
    # The emulator does not know the signatures of such credentials.
    service.check_signatures(False)
    try:
        server.serve(key).terminate()
    finally:
        service.check_signatures(True)
    assert "a.token.of-kubernetes" not in server.stderr()
