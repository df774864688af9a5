"""The Helm chart: what it renders, whether Kubernetes and `kedge serve` take that, and what its documents say.

`KEDGE_UPDATE_GOLDEN=1 make test-deploy` writes the files in golden/ anew.
"""

import functools
import json
import os
import re
import shutil
import time

import kubernetes_validate
import pytest
import yaml
from conftest import CHART, HELM, HERE, KEDGE, REPOSITORY, UPDATES, run, template

VALUES = sorted((HERE / "values").glob("*.yaml"))
NAMES = [path.stem for path in VALUES]
# The oldest release of Kubernetes that the chart takes, and the newest whose schemas are at hand.
RELEASES = ["1.27", "1.37"]


@functools.cache
def rendered(path):
    done = template(path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(path):
    return [it for it in yaml.safe_load_all(rendered(path)) if it]


def of_kind(path, kind):
    return [it for it in objects(path) if it["kind"] == kind]


def stateful_set(path):
    [found] = of_kind(path, "StatefulSet")
    return found


def container(path):
    [found] = stateful_set(path)["spec"]["template"]["spec"]["containers"]
    return found


@pytest.fixture(params=VALUES, ids=NAMES)
def values(request):
    return request.param


def test_chart_renders_what_was_checked_in(values):
    golden = HERE / "golden" / values.name
    text = rendered(values)
    if UPDATES:
        golden.write_text(text)
    assert text == golden.read_text(), f"{golden}: after a wanted change: KEDGE_UPDATE_GOLDEN=1 make test-deploy"


def test_every_golden_file_has_values():
    assert [path.name for path in sorted((HERE / "golden").glob("*"))] == [path.name for path in VALUES]


def test_lint_finds_nothing(values):
    done = run(HELM, "lint", "--strict", "--values", values, CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("release", RELEASES)
def test_kubernetes_accepts_all_objects(values, release):
    for it in objects(values):
        kubernetes_validate.validate(it, release, strict=True)


def test_validation_refuses_an_unknown_field():
    it = stateful_set(VALUES[0])
    it["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(it, RELEASES[-1], strict=True)


def test_chart_names_the_oldest_release():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={RELEASES[0]}.0-0"
    version = re.search(r'^version = "(.*)"', (REPOSITORY / "Cargo.toml").read_text(), re.M).group(1)
    assert chart["appVersion"] == version


def test_names_are_unique(values):
    names = [(it["kind"], it["metadata"]["name"]) for it in objects(values)]
    assert len(set(names)) == len(names)


def variables(values, pod):
    """The environment of the container in a pod."""
    of_pod = {
        "metadata.name": pod,
        "metadata.labels['topology.kubernetes.io/zone']": "zone-1",
        "status.hostIP": "192.0.2.1",
    }
    found = {}
    for entry in container(values)["env"]:
        source = entry.get("valueFrom", {})
        if "fieldRef" in source:
            found[entry["name"]] = of_pod[source["fieldRef"]["fieldPath"]]
        elif "secretKeyRef" in source:
            found[entry["name"]] = "the password of a secret"
        else:
            found[entry["name"]] = entry["value"]
    return found


def expand(text, known):
    """The argument as Kubernetes passes it on."""
    expanded = re.sub(r"\$\(([A-Za-z_]+)\)", lambda match: known[match.group(1)], text)
    assert "$(" not in expanded
    return expanded


def settings_shown(values, pod, directory):
    """The output of `kedge config` with the arguments, the variables and the file of a pod."""
    [config] = of_kind(values, "ConfigMap")
    known = variables(values, pod)
    words = container(values)
    assert words["command"] == ["kedge"] and words["args"][0] == "serve"
    flags = [expand(text, known) for text in words["args"][1:]]
    [mounted] = [text.removeprefix("--config=") for text in flags if text.startswith("--config=")]
    file = directory / "settings.toml"
    file.write_text(config["data"][os.path.basename(mounted)])
    flags = [f"--config={file}" if text.startswith("--config=") else text for text in flags]
    return run(KEDGE, "config", *flags, env={"PATH": os.environ["PATH"], **known})


def pods(values):
    found = stateful_set(values)
    return [f"{found['metadata']['name']}-{at}" for at in range(found["spec"]["replicas"])]


def test_server_takes_every_argument_and_setting(values, tmp_path):
    for pod in pods(values):
        done = settings_shown(values, pod, tmp_path)
        assert done.returncode == 0, f"{pod}: {done.stderr}"
        assert str(tmp_path / "settings.toml") in done.stdout or "config:" not in values.read_text()


def test_every_variable_of_the_server_is_a_setting(values):
    """An unknown flag is an error of the server, an unknown variable is not."""
    known = set(re.findall(r"variable `(KEDGE_\w+)`", (REPOSITORY / "docs" / "config.md").read_text()))
    assert known
    ours = {name for name in variables(values, "pod-0") if name.startswith("KEDGE_")}
    assert ours <= known
    assert stateful_set(values)["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_updates_wait_until_clients_have_connected_again(values):
    assert stateful_set(values)["spec"]["minReadySeconds"] == 10


def test_probes_have_the_documented_paths(values):
    it = container(values)
    documented = (REPOSITORY / "docs" / "reference" / "http.md").read_text()
    assert it["readinessProbe"]["httpGet"] == {"path": "/kedge/ready", "port": "mgmt"}
    for probe in ("livenessProbe", "startupProbe"):
        assert it[probe]["httpGet"] == {"path": "/", "port": "mgmt"}
    assert "`GET /kedge/ready`" in documented and "`GET /`" in documented


def test_ports_of_services_are_those_of_the_container(values):
    ports = {port["name"]: port["containerPort"] for port in container(values)["ports"]}
    assert ports == {"kv": 11210, "mgmt": 8091}
    for service in of_kind(values, "Service"):
        assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports


def test_selectors_select_the_pods(values):
    labels = stateful_set(values)["spec"]["template"]["metadata"]["labels"]
    selectors = [stateful_set(values)["spec"]["selector"]["matchLabels"]]
    selectors += [it["spec"]["selector"]["matchLabels"] for it in of_kind(values, "PodDisruptionBudget")]
    selectors += [it["spec"]["podSelector"]["matchLabels"] for it in of_kind(values, "NetworkPolicy")]
    for service in of_kind(values, "Service"):
        selector = dict(service["spec"]["selector"])
        assert selector.pop("statefulset.kubernetes.io/pod-name", pods(values)[0]) in pods(values)
        selectors.append(selector)
    for selector in selectors:
        assert selector.items() <= labels.items()


def test_pods_are_restricted(values):
    """The level "restricted" of the Pod Security Standards."""
    spec = stateful_set(values)["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    it = container(values)["securityContext"]
    assert it["allowPrivilegeEscalation"] is False
    assert it["readOnlyRootFilesystem"] is True
    assert it["capabilities"] == {"drop": ["ALL"]}


def test_every_mount_has_a_volume(values):
    spec = stateful_set(values)["spec"]
    volumes = {it["name"] for it in spec["template"]["spec"]["volumes"]}
    volumes |= {it["metadata"]["name"] for it in spec.get("volumeClaimTemplates", [])}
    assert {it["name"] for it in container(values)["volumeMounts"]} == volumes


REFUSED = [
    (["replicaCount=2"], "coordinator.endpoints is empty"),
    (["image.repository="], "image.repository is empty"),
    (["auth.existingSecret="], "auth.existingSecret"),
    (["auth.password=secret"], "only one of"),
    (["auth.existingSecret=", "auth.password=password"], "/auth/password"),
    (["serverGroup.source=fixed"], "serverGroup.name is empty"),
    (["serverGroup.source=rack"], "serverGroup"),
    (["coordinator.endpoints={http://etcd:2379}"], "/coordinator/endpoints"),
    (["coordinator.endpoints={etcd:2379}", "coordinator.user.name=kedge"], "user.existingSecret is empty"),
    (["coordinator.tls.certKey=tls.crt"], "belong together"),
    (["external.type=NodePort"], "external.type needs a cluster"),
    (["coordinator.endpoints={etcd:2379}", "external.type=LoadBalancer"], "needs external.hosts"),
    (["coordinator.endpoints={etcd:2379}", "external.type=NodePort", "external.hosts={a,b}"], "one host for each"),
    (["config.data_dir=/x"], "data_dir"),
    (["config.Vbuckets=1"], "Vbuckets"),
    (["terminationGracePeriodSeconds=10"], "terminationGracePeriodSeconds"),
    (["nonsense=1"], "nonsense"),
]


@pytest.mark.parametrize("changes, reason", REFUSED, ids=[" ".join(changes) for changes, _ in REFUSED])
def test_values_that_cannot_work_are_refused(changes, reason):
    done = template(HERE / "values" / "minimal.yaml", *[word for change in changes for word in ("--set", change)])
    assert done.returncode != 0
    assert reason in done.stderr


def leaves(value, path=""):
    """Every value by its path; lists and empty maps are one value."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, f"{path}.{key}" if path else key)
    else:
        yield path, value


# Values of Kubernetes' own types have a row as a whole.
WHOLE = ["resources", "podSecurityContext", "securityContext"]


def test_readme_has_every_value_and_its_default():
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    expected = {}
    for key, value in defaults.items():
        if key in WHOLE:
            expected[key] = None
        else:
            expected.update(leaves(value, key))
    rows = re.findall(r"^\| `([\w.]+)` \| (.*?) \| \S.* \|$", (CHART / "README.md").read_text(), re.M)
    assert [name for name, _ in rows] == list(expected)
    for name, default in rows:
        if name not in WHOLE:
            assert default == f"`{json.dumps(expected[name], ensure_ascii=False)}`", name


def test_schema_has_every_value():
    def check(schema, value, path):
        if isinstance(value, dict) and "properties" in schema:
            assert schema["additionalProperties"] is False, path
            assert set(value) == set(schema["properties"]) - {"global"}, path
            for key, below in value.items():
                check(schema["properties"][key], below, f"{path}.{key}")

    schema = json.loads((CHART / "values.schema.json").read_text())
    check(schema, yaml.safe_load((CHART / "values.yaml").read_text()), "")


def hook(values):
    return container(values)["lifecycle"]["preStop"]["exec"]["command"]


CLUSTER = HERE / "values" / "cluster.yaml"


@pytest.mark.parametrize(
    "script, asked, left_s",
    [
        # A release without the command.
        ('[ "$3" = --help ] && exit 2; echo "$@" >> "$ASKED"', "", 5),
        ('[ "$3" = --help ] && exit 0; echo "$@" >> "$ASKED"', "cluster drain shop-kedge-1 --url http://127.0.0.1:8091\n", 5),
        # A node that cannot give its vBuckets away stops nevertheless, now or when its time is over.
        ('[ "$3" = --help ] && exit 0; echo "$@" >> "$ASKED"; exit 1', "cluster drain shop-kedge-1 --url http://127.0.0.1:8091\n", 5),
        ('[ "$3" = --help ] && exit 0; echo "$@" >> "$ASKED"; exec sleep 60', "cluster drain shop-kedge-1 --url http://127.0.0.1:8091\n", 20),
    ],
    ids=["missing", "drains", "fails", "hangs"],
)
def test_hook_drains_and_never_fails(tmp_path, script, asked, left_s):
    tool, notes = tmp_path / "kedge", tmp_path / "asked"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    words = [word.replace("timeout 90 ", "timeout 1 ") for word in hook(CLUSTER)]
    assert words != hook(CLUSTER)
    began = time.monotonic()
    done = run(*words, env={"PATH": path, "POD_NAME": "shop-kedge-1", "ASKED": str(notes)})
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < left_s
    assert (notes.read_text() if notes.exists() else "") == asked


def test_hook_ends_before_the_pod_is_killed(values):
    it = container(values)
    if "lifecycle" not in it:
        assert len(pods(values)) == 1
        return
    assert shutil.which("timeout")
    [limit] = re.findall(r"timeout (\d+) ", hook(values)[-1])
    grace = stateful_set(values)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert int(limit) + 30 <= grace
