"""Tests of ``examples/kubernetes`` and ``examples/systemd``: their schema, and that they match the program they run."""

from __future__ import annotations

import argparse
import configparser
import copy
import importlib.util
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from kubernetes_validate.utils import all_versions  # type: ignore[import-untyped]

from zkconsumer.config import ConsumerConfig
from zkconsumer.health import Health
from zkconsumer.health_server import HealthServer

EXAMPLES = Path(__file__).parents[2] / "examples"
RESOURCES: list[dict[str, Any]] = list(yaml.safe_load_all((EXAMPLES / "kubernetes" / "deployment.yaml").read_text()))
BY_KIND = {resource["kind"]: resource for resource in RESOURCES}
DEPLOYMENT = BY_KIND["Deployment"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
[CONTAINER] = POD["containers"]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}

#: The oldest and the latest release of Kubernetes whose schema the package has.
VERSIONS = [all_versions()[index] for index in (0, -1)]


class Healthy:
    health = Health()


def load_program() -> Any:
    """Return the module of the program that the manifests run."""
    specification = importlib.util.spec_from_file_location("service_consumer", EXAMPLES / "service_consumer.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def parse(command: list[str]) -> argparse.Namespace:
    """Return the options of a command line that runs the program."""
    interpreter, program, *arguments = command
    assert Path(interpreter).name == "python"
    assert (EXAMPLES / Path(program).name).is_file()
    options: argparse.Namespace = load_program().parse_arguments(arguments)
    return options


# ---- Kubernetes --------------------------------------------------------------------------------------------


def test_manifest_has_all_resources() -> None:
    assert sorted(BY_KIND) == sorted(r["kind"] for r in RESOURCES)
    assert sorted(BY_KIND) == ["ConfigMap", "Deployment", "PodDisruptionBudget", "Secret"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", BY_KIND)
def test_resource_matches_schema(kind: str, version: str) -> None:
    kubernetes_validate.validate(BY_KIND[kind], version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
def test_schema_rejects_misspelled_fields(version: str) -> None:
    wrong = copy.deepcopy(BY_KIND["Deployment"])
    probe = wrong["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]
    probe["httpget"] = probe.pop("httpGet")

    with pytest.raises(kubernetes_validate.ValidationError, match="httpget"):
        kubernetes_validate.validate(wrong, version, strict=True)


@pytest.mark.parametrize(("probe", "path"), [("livenessProbe", "/live"), ("readinessProbe", "/ready")])
def test_probe_uses_path_of_health_server(probe: str, path: str) -> None:
    request = CONTAINER[probe]["httpGet"]

    assert (request["path"], request["port"]) == (path, "health")
    with HealthServer(Healthy(), 0, "127.0.0.1") as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as response:
            assert response.status == 200
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}x", timeout=10)


def test_ports_are_those_of_the_program() -> None:
    options = parse(CONTAINER["command"])

    assert {"health": options.health_port, "metrics": options.metrics_port} == PORTS
    assert PORTS["health"] == HealthServer(Healthy()).port
    assert DEPLOYMENT["template"]["metadata"]["annotations"]["prometheus.io/port"] == str(PORTS["metrics"])


def test_files_of_the_program_are_mounted() -> None:
    options = parse(CONTAINER["command"])
    mounts = {mount["name"]: mount["mountPath"] for mount in CONTAINER["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    directory, _, file = options.properties.rpartition("/")

    assert mounts == {"configuration": directory, "secrets": str(options.secrets)}
    assert volumes["configuration"]["configMap"]["name"] == BY_KIND["ConfigMap"]["metadata"]["name"]
    assert volumes["secrets"]["secret"]["secretName"] == BY_KIND["Secret"]["metadata"]["name"]
    assert list(BY_KIND["ConfigMap"]["data"]) == [file]


def test_properties_are_valid_with_secrets_only(tmp_path: Path) -> None:
    path = tmp_path / "consumer.properties"
    path.write_text(BY_KIND["ConfigMap"]["data"]["consumer.properties"])

    config = ConsumerConfig.from_properties(path, BY_KIND["Secret"]["stringData"], strict=True)

    assert config.sasl_password == "change-me"
    assert "password" not in path.read_text()
    assert config.consumer_id is None, "the pods would have the same id"


def test_selectors_match_pods() -> None:
    labels = DEPLOYMENT["template"]["metadata"]["labels"]

    assert DEPLOYMENT["selector"]["matchLabels"] == labels
    assert BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels


def test_members_are_replaced_one_by_one() -> None:
    assert DEPLOYMENT["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }


# ---- systemd -----------------------------------------------------------------------------------------------


@pytest.fixture
def unit() -> configparser.ConfigParser:
    text = (EXAMPLES / "systemd" / "zkconsumer.service").read_text().replace("\\\n", " ")
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.optionxform = str  # type: ignore[method-assign, assignment]  # names are case-sensitive
    parsed.read_string(text)
    return parsed


def test_unit_runs_the_program(unit: configparser.ConfigParser) -> None:
    options = parse(unit["Service"]["ExecStart"].split())

    assert str(options.secrets) == "${CREDENTIALS_DIRECTORY}"
    assert options.health_port == PORTS["health"]


def test_unit_waits_as_long_as_kubernetes(unit: configparser.ConfigParser) -> None:
    assert int(unit["Service"]["TimeoutStopSec"]) == POD["terminationGracePeriodSeconds"]


def test_credentials_are_properties(unit: configparser.ConfigParser) -> None:
    [name] = re.findall("^([^:]+):", unit["Service"]["LoadCredential"])

    assert name in BY_KIND["Secret"]["stringData"]
