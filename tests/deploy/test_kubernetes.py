"""The manifests: the schemas of Kubernetes, and that they fit the worker and each other."""

import kubernetes_validate
import pytest
from tests.deploy.files import DEPLOY, KUBERNETES, container, document, kind, option

from holdfast.http.server import END_S
from holdfast.worker.health import PATIENCE_S
from holdfast.worker.metrics import METRICS
from holdfast.worker.settings import Settings

OLDEST = "1.30"  # from then on a preStop hook may be `sleep`
MANIFESTS = [path for path in KUBERNETES if path.name != "kustomization.yaml"]


@pytest.mark.parametrize("version", [OLDEST, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_each_manifest_fits_its_schema(path, version):
    """Strictly: no field that the API does not know, and there is a schema that would not let one pass."""
    manifest = document(path)
    kubernetes_validate.validate(manifest, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError, match="noSuchField"):
        kubernetes_validate.validate(manifest | {"noSuchField": 1}, version, strict=True)


def test_a_wrong_manifest_is_noticed():
    """The check itself fails on a field that is not there."""
    wrong = kind("Deployment")
    wrong["spec"]["template"]["spec"]["gracePeriod"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="gracePeriod"):
        kubernetes_validate.validate(wrong, OLDEST, strict=True)


def test_the_kustomization_names_every_manifest_and_the_image():
    """What is applied is what is there."""
    found = document(DEPLOY / "kubernetes" / "kustomization.yaml")
    assert sorted(found["resources"]) == sorted(path.name for path in MANIFESTS)
    assert found["namespace"] == kind("Namespace")["metadata"]["name"]
    assert [image["name"] for image in found["images"]] == [container()["image"]]
    assert all(image["newTag"] != "latest" for image in found["images"])


def test_selectors_select_the_workers():
    """The budget, the policy, the service and the autoscaler are about the pods of the Deployment."""
    deployment = kind("Deployment")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    selectors = [
        deployment["spec"]["selector"], kind("PodDisruptionBudget")["spec"]["selector"],
        kind("NetworkPolicy")["spec"]["podSelector"],
        deployment["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"],
    ]  # fmt: skip
    for selector in selectors:
        assert selector["matchLabels"].items() <= labels.items()
    service = kind("Service")["spec"]
    assert service["selector"].items() <= labels.items()
    (port,), (named,) = service["ports"], container()["ports"]
    assert (port["port"], port["targetPort"]) == (named["containerPort"], named["name"])
    target = kind("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", deployment["metadata"]["name"])
    assert "replicas" not in deployment["spec"]  # each apply would undo what the autoscaler did
    assert kind("ServiceAccount")["metadata"]["name"] == deployment["spec"]["template"]["spec"]["serviceAccountName"]


def test_a_pod_has_time_to_drain():
    """The pod's time to end is longer than preStop and the grace together."""
    pod = kind("Deployment")["spec"]["template"]["spec"]
    grace_s = float(option(container()["args"], "grace"))
    needed_s = container()["lifecycle"]["preStop"]["sleep"]["seconds"] + grace_s
    assert pod["terminationGracePeriodSeconds"] >= needed_s + 5


def test_probes_ask_the_port_of_the_worker_and_wait_long_enough():
    """A probe waits longer than the worker takes to say no, and no pod is killed before its leases are given up."""
    (port,) = container()["ports"]
    assert str(port["containerPort"]) == option(container()["args"], "port")
    assert option(container()["args"], "host") == "0.0.0.0"
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for name, path in paths.items():
        probe = container()[name]
        assert probe["httpGet"] == {"path": path, "port": port["name"]}
        assert probe["timeoutSeconds"] > PATIENCE_S
    liveness = container()["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] > Settings().hang_limit_s
    annotations = kind("Deployment")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    assert annotations["prometheus.io/path"] == "/metrics"
    assert kind("NetworkPolicy")["spec"]["ingress"][0]["ports"][0]["port"] == port["containerPort"]


@pytest.mark.parametrize("of", ["worker", "server"])
def test_a_pod_can_do_nothing_but_work(of):
    """Not root, no rights, a root file system that cannot be written, bounded memory."""
    pod, work = kind("Deployment", of)["spec"]["template"]["spec"], container(of)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert work["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    assert "memory" in work["resources"]["limits"]
    assert work["resources"]["requests"].keys() == {"cpu", "memory"}


def test_servers_are_selected_probed_and_ended_as_they_should():
    """Budget, policy and service are about its pods and its port; probes are its paths; it has time to end; two are there."""
    deployment, (port,) = kind("Deployment", "server"), container("server")["ports"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] >= 2
    assert deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    for selector in (deployment["spec"]["selector"], kind("PodDisruptionBudget", "server")["spec"]["selector"],
                     kind("NetworkPolicy", "server")["spec"]["podSelector"]):  # fmt: skip
        assert selector["matchLabels"].items() <= labels.items()
    service = kind("Service", "server")["spec"]
    assert service["selector"].items() <= labels.items()
    assert [each["targetPort"] for each in service["ports"]] == [port["name"]]
    assert str(port["containerPort"]) == option(container("server")["args"], "port")
    assert kind("NetworkPolicy", "server")["spec"]["ingress"][0]["ports"][0]["port"] == port["containerPort"]
    paths = {"startupProbe": "/healthz", "livenessProbe": "/healthz", "readinessProbe": "/readyz"}
    for name, path in paths.items():
        probe = container("server")[name]
        assert probe["httpGet"] == {"path": path, "port": port["name"]}
        assert probe["timeoutSeconds"] > PATIENCE_S
    waits_s = container("server")["lifecycle"]["preStop"]["sleep"]["seconds"] + END_S
    assert deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= waits_s + 5


def test_the_autoscaler_follows_a_metric_that_workers_have():
    """Its name and its label are those of METRICS."""
    (metric,) = kind("HorizontalPodAutoscaler")["spec"]["metrics"]
    named = metric["external"]["metric"]
    (found,) = [each for each in METRICS if each.name == named["name"]]
    assert set(named["selector"]["matchLabels"]) <= set(found.labels)
