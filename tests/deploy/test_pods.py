"""Pods of the chart as processes of this machine, on the etcd of docs/guides/three-machines.md."""

import json
import os

import yaml
from conftest import CHART, HELM, KEDGE, run
from machines import MACHINES, NETWORK, PASSWORD_OF_ETCD

# The pods are addresses of loopback, other ones than those of the guide.
PODS = "127.0.42"


def values():
    return {
        "image": {"repository": "registry.example/kedge"},
        "auth": {"password": "the password of the values"},
        "coordinator": {
            "endpoints": [f"{NETWORK}.{number}:2379" for number in MACHINES],
            "prefix": "kedge/shop/pods",
            "tls": {"existingSecret": "etcd-client", "certKey": "tls.crt", "keyKey": "tls.key"},
            "user": {"name": "kedge", "existingSecret": "etcd-user"},
        },
        "config": {"vbuckets": 16, "bucket_quota": "256MiB"},
    }


class Pod:
    """One pod of a rendered StatefulSet."""

    def __init__(self, machines, objects, number):
        [self.set] = [it for it in objects if it["kind"] == "StatefulSet"]
        [self.config] = [it for it in objects if it["kind"] == "ConfigMap"]
        self.name = f"{self.set['metadata']['name']}-{number}"
        self.address = f"{PODS}.{number + 1}"
        self.root = machines.root / self.name
        self.mount(machines)

    def mount(self, machines):
        files = {
            "settings/kedge.toml": self.config["data"]["kedge.toml"].encode(),
            "etcd-tls/ca.crt": (machines.root / "ca.crt").read_bytes(),
            "etcd-tls/tls.crt": (machines.root / "client.crt").read_bytes(),
            "etcd-tls/tls.key": (machines.root / "client.key").read_bytes(),
            "etcd-user/password": PASSWORD_OF_ETCD.encode(),
        }
        for name, content in files.items():
            file = self.root / "etc/kedge" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def words(self):
        """The command, with the pod's address for its names, and its files below the directory of the test."""
        [it] = self.set["spec"]["template"]["spec"]["containers"]
        found = []
        for text in it["args"]:
            text = text.replace("$(POD_NAME)", self.name).replace("$(SERVER_GROUP)", "zone-1")
            text = text.replace("/etc/kedge/", f"{self.root}/etc/kedge/").replace("=/data/", f"={self.root}/data/")
            flag = text.split("=")[0]
            found.append(f"{flag}={self.address}" if flag in ("--listen", "--advertise") else text)
        return [KEDGE, *found]

    def start(self, machines):
        environment = {"KEDGE_USER": "Administrator", "KEDGE_PASSWORD": "the password of the values"}
        machines.start(self.name, self.words(), environment)


def test_pods_are_nodes_on_etcd(machines):
    given = machines.root / "values.yaml"
    given.write_text(yaml.safe_dump(values()))
    done = run(HELM, "template", "shop", CHART, "--values", given)
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    first, second = (Pod(machines, objects, number) for number in (0, 1))
    first.start(machines)
    machines.becomes(first.name, first.address, "ready")
    second.start(machines)
    machines.becomes(second.name, second.address, "notMember")
    login = {"KEDGE_URL": f"http://{first.address}:8091", "KEDGE_PASSWORD": "the password of the values"}
    environment = {"PATH": os.environ["PATH"], **login}
    done = run(KEDGE, "cluster", "add", second.name, env=environment)
    assert done.returncode == 0, done.stderr
    machines.becomes(second.name, second.address, "ready")
    done = run(KEDGE, "cluster", "status", "--json", env=environment)
    nodes = json.loads(done.stdout)["nodes"]
    assert [(node["name"], node["host"]) for node in nodes] == [(it.name, it.address) for it in (first, second)]
