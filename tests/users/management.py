"""Management over HTTP."""

import base64
import http.client
import json
import urllib.parse

SECONDS = 90


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Management:
    """A user of management. Each request has a connection of its own."""

    def __init__(self, port, user=None, password=None, token=None):
        self._port = port
        if token is not None:
            self._authorization = f"Bearer {token}"
        else:
            both = f"{user}:{password}".encode()
            self._authorization = "Basic " + base64.b64encode(both).decode()

    def request(self, method, path, form=None):
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
        try:
            body = urllib.parse.urlencode(form) if isinstance(form, dict) else form
            connection.request(method, path, body, {"Authorization": self._authorization})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read().decode())
        finally:
            connection.close()

    def get(self, path):
        return self.request("GET", path)

    def do(self, method, path, form=None):
        """A request that has to succeed."""
        reply = self.request(method, path, form)
        assert reply.status == 200, f"{method} {path}: {reply.status} {reply.body}"
        return reply

    def metric(self, name):
        for line in self.do("GET", "/metrics").body.splitlines():
            if line.split(" ")[0] in (name, f"{name}_total"):
                return float(line.split(" ")[1])
        raise AssertionError(f"no metric {name}")

    def group(self, name, roles, reference=""):
        self.do("PUT", f"/settings/rbac/groups/{name}", {"roles": roles, "ldap_group_ref": reference})

    def external_user(self, name, roles):
        self.do("PUT", f"/settings/rbac/users/external/{name}", {"roles": roles})

    def reset(self):
        self.do("DELETE", "/settings/ldap")
        self.do("DELETE", "/settings/jwt")
        for user in self.do("GET", "/settings/rbac/users").json():
            self.do("DELETE", f"/settings/rbac/users/{user['domain']}/{urllib.parse.quote(user['id'])}")
        for group in self.do("GET", "/settings/rbac/groups").json():
            self.do("DELETE", f"/settings/rbac/groups/{group['id']}")
