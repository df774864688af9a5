"""AWS KMS, STS and IAM, as moto emulates them. Signatures and rights are checked: only the caller below may use keys."""

import functools
import json
import urllib.request

import boto3
from moto.core.exceptions import JsonRESTError
from moto.kms.models import KmsBackend
from moto.server import ThreadedMotoServer

REGION = "eu-west-1"
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
CONTEXT = {"kedge": "keyring"}


def refuse_disabled_keys():
    """moto does not look at the state of keys: both operations refuse disabled ones as AWS does."""
    def refusing(operation):
        @functools.wraps(operation)
        def checked(backend, *arguments, **named):
            result, arn = operation(backend, *arguments, **named)
            if not backend.keys[arn.split("/")[1]].enabled:
                raise JsonRESTError("DisabledException", f"{arn} is disabled.")
            return result, arn

        return checked

    KmsBackend.encrypt = refusing(KmsBackend.encrypt)
    KmsBackend.decrypt = refusing(KmsBackend.decrypt)


class Service:
    """The emulator. What it has stays while it is stopped."""

    def __init__(self):
        self._server, self.port = None, 0
        refuse_disabled_keys()
        self.start()
        anybody = {"aws_access_key_id": "setup", "aws_secret_access_key": "setup"}
        iam = self._client("iam", anybody)
        iam.create_user(UserName="kedge")
        iam.put_user_policy(UserName="kedge", PolicyName="all", PolicyDocument=json.dumps(POLICY))
        key = iam.create_access_key(UserName="kedge")["AccessKey"]
        self.id, self.secret = key["AccessKeyId"], key["SecretAccessKey"]
        self.check_signatures(True)
        self.kms = self._client("kms", {"aws_access_key_id": self.id, "aws_secret_access_key": self.secret})

    def _client(self, service, credentials):
        return boto3.client(service, region_name=REGION, endpoint_url=self.url, **credentials)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        if self._server is None:
            self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
            self._server.start()
            self.port = self._server.get_host_and_port()[1]

    def stop(self):
        if self._server is not None:
            self._server.stop()
            self._server = None

    def check_signatures(self, are_checked):
        requests = b"0" if are_checked else b"inf"
        request = urllib.request.Request(f"{self.url}/moto-api/reset-auth", requests, {"Content-Type": "text/plain"})
        urllib.request.urlopen(request).close()

    @property
    def credentials(self):
        """The environment of a process of the caller."""
        return {"AWS_ACCESS_KEY_ID": self.id, "AWS_SECRET_ACCESS_KEY": self.secret}

    def key(self):
        """The ARN of a new key."""
        return self.kms.create_key()["KeyMetadata"]["Arn"]

    def enable(self, key, is_enabled):
        # moto takes no ARN here.
        change = self.kms.enable_key if is_enabled else self.kms.disable_key
        change(KeyId=key.split("/")[1])

    def source(self, key, **options):
        options = {"endpoint": self.url, "region": REGION, **options}
        return f"awskms:{key}?" + "&".join(f"{name}={value}" for name, value in options.items())
