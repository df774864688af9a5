"""The steps of docs/guides/three-machines.md, executed."""

import json
import os
import re
import time

from conftest import KEDGE, run
from machines import MACHINES, NETWORK, PASSWORD_OF_ETCD, PATIENCE_S, block, blocks


# Of the administrator, at the first node.
LOGIN = {
    "PATH": os.environ["PATH"],
    "KEDGE_URL": f"http://{NETWORK}.1:8091",
    "KEDGE_PASSWORD": "a long password",
}


def etcdctl(machines, *words):
    """etcdctl as the guide's user of Kedge."""
    variables = re.findall(r"(ETCDCTL_\w+)=(\S+)", machines.here(block("sh", "etcdctl user add")))
    login = {"ETCDCTL_USER": f"kedge:{PASSWORD_OF_ETCD}"}
    return run("etcdctl", *words, cwd=machines.root, env={"PATH": os.environ["PATH"], **dict(variables), **login})


def commands(machines, words):
    """The commands of the block with these words."""
    [text] = [text for text in blocks("") if words in text]
    return [line.replace("kedge ", f"{KEDGE} ", 1) for line in machines.here(text).splitlines()]


def test_user_of_etcd_may_use_the_keys_of_the_cluster_only(machines):
    for key, allowed in (("/kedge/shop/test", True), ("/kedge/other/test", False)):
        done = etcdctl(machines, "put", key, "text")
        assert (done.returncode == 0) is allowed, done.stderr
    etcdctl(machines, "del", "/kedge/shop/test")


def test_nodes_become_members_with_copies(machines):
    """The first node creates the cluster, the others wait until they are added."""
    for number, before in ((1, "ready"), (2, "notMember"), (3, "notMember")):
        machines.begin_node(number)
        machines.becomes(f"node{number}", f"{NETWORK}.{number}", before)
    for command in commands(machines, "kedge cluster add"):
        done = run("sh", "-c", command, env=LOGIN)
        assert done.returncode == 0, done.stderr
    for number in (1, 2, 3):
        machines.becomes(f"node{number}", f"{NETWORK}.{number}", "ready")
    [create] = commands(machines, "kedge bucket create")
    done = run("sh", "-c", create.replace("8192", "256"), env=LOGIN)
    assert done.returncode == 0, done.stderr
    bucket = wait_for(lambda bucket: bucket["replicas"] == 1 and bucket["missingCopies"] == 0)
    actives = {node["node"]: node["active"] for node in bucket["nodes"]}
    assert sum(actives.values()) == bucket["vbuckets"]
    assert max(actives.values()) - min(actives.values()) <= 1, actives
    done = run(KEDGE, "cluster", "status", env=LOGIN)
    assert done.returncode == 0, done.stderr


def test_lost_machine_is_replaced(machines):
    """Machine 3 is gone with its disks, and another one takes its place."""
    machines.lose(3)
    wait_until(lambda: is_failed_over("db3"))
    etcd = machines.here(block("sh", "etcdctl user add")).split("etcdctl")[0]
    login, *changes = machines.here(block("sh", "etcdctl member remove")).strip().splitlines()
    for change in changes:
        # etcd refuses a change of its members until they have been connected for some seconds.
        words = f"{etcd}{login}\n{change}"
        wait_until(lambda words=words: run("sh", "-ec", words, cwd=machines.root).returncode == 0)
    machines.begin_member(3, "existing")
    machines.begin_node(3)
    machines.becomes("node3", f"{NETWORK}.3", "failedOver")
    wait_until(lambda: kedge(machines, "kedge cluster recover").returncode == 0)
    machines.becomes("node3", f"{NETWORK}.3", "ready")
    wait_for(lambda bucket: bucket["missingCopies"] == 0)


def test_etcd_is_restored_from_a_snapshot(machines):
    """All members lose their data, and a bucket that the snapshot does not know stays."""
    etcd = machines.here(block("sh", "etcdctl user add")).split("etcdctl")[0]
    save = machines.here(block("sh", "etcdctl snapshot save"))
    done = run("sh", "-ec", f"{etcd}{save}", cwd=machines.root)
    assert done.returncode == 0, done.stderr
    done = run(KEDGE, "bucket", "create", "later", "--quota", "256", "--vbuckets", "16", env=LOGIN)
    assert done.returncode == 0, done.stderr
    for number in MACHINES:
        machines.end(f"etcd{number}")
    for number in MACHINES:
        machines.restore_member(number)
        machines.start_member(number, "existing")
    wait_until(lambda: any(status_of(number)["coordinator"]["wentBackwards"] for number in MACHINES))
    for number in MACHINES:
        wait_until(lambda number=number: status_of(number)["coordinator"]["trouble"] is None)
        assert [bucket["name"] for bucket in status_of(number)["buckets"]] == ["later", "shop"]
    wait_until(lambda: run(KEDGE, "cluster", "status", env=LOGIN).returncode == 0)
    done = run(KEDGE, "cluster", "auto-failover", env=LOGIN)
    assert done.returncode == 0, done.stderr


def status_of(number):
    done = run(KEDGE, "cluster", "status", "--json", env={**LOGIN, "KEDGE_URL": f"http://{NETWORK}.{number}:8091"})
    return json.loads(done.stdout)


def is_failed_over(name):
    done = run(KEDGE, "cluster", "status", "--json", env=LOGIN)
    nodes = json.loads(done.stdout)["nodes"] if done.stdout else []
    return any(node["name"] == name and node["failedOver"] for node in nodes)


def kedge(machines, words):
    """The command of the block that begins with these words, once."""
    commands = {machines.here(text).strip() for text in blocks("") if text.startswith(words)}
    [command] = commands
    return run("sh", "-c", command.replace("kedge ", f"{KEDGE} ", 1), env=LOGIN)


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def wait_for(condition):
    """The status of the bucket, as soon as the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        done = run(KEDGE, "cluster", "status", "--json", env=LOGIN)
        [bucket] = json.loads(done.stdout)["buckets"]
        if condition(bucket):
            return bucket
        assert time.monotonic() < deadline, done.stdout
        time.sleep(0.2)
