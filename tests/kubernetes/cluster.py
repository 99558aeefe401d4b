"""A release of the chart in the cluster that KUBECONFIG names, by kubectl and helm."""

from __future__ import annotations

import base64
import io
import json
import os
import shlex
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "sirocco-test"
RELEASE = "sirocco"
CHART = str(ROOT / "charts/sirocco")
SERVICES = ("router", "evaluator", "merger", "coordinator")

# The tests' files that the client needs; the rest is in the image.
CLIENT_FILES = (
    "tests/oracle",
    "tests/end_to_end/under_load.py",
    "tests/kubernetes/traffic.py",
    "tests/kubernetes/strangers.py",
    "tests/kubernetes/returning.py",
)
CLIENT_DIRECTORY = "/tmp/client"
# The directory of the secret in the client's pod.
CLIENT_SECRETS = "/etc/sirocco-client"

# Bounds of the tests, not promises: a node with two cores, which also runs the control plane.
needs_cluster = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        "SIROCCO_IMAGES_TAG" not in os.environ or "KUBECONFIG" not in os.environ,
        reason="no cluster with images: make test-kubernetes makes one",
    ),
]


def run(*command: str, check: bool = True, given: bytes | None = None) -> str:
    """Runs a command; returns its stdout."""
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    output = (done.stdout + done.stderr).decode(errors="replace")
    assert not check or done.returncode == 0, f"{' '.join(command)}:\n{output}"
    return done.stdout.decode(errors="replace")


def kubectl(*arguments: str, check: bool = True, given: bytes | None = None) -> str:
    """Runs kubectl in the namespace of the test."""
    return run("kubectl", "--namespace", NAMESPACE, *arguments, check=check, given=given)


def helm(*arguments: str) -> str:
    """Runs helm in the namespace of the test, and prints its output."""
    output = run("helm", "--namespace", NAMESPACE, *arguments)
    print(output)
    return output


def settings() -> list[str]:
    """Returns the release's settings on the command line: images, and sizes for a small node."""
    tag = os.environ["SIROCCO_IMAGES_TAG"]
    reported = {
        "image.tag": tag,
        "spark.image.tag": tag,
        "development.kafka.image": f"sirocco-dev-kafka:{tag}",
        "development.redis.image": f"sirocco-dev-redis:{tag}",
    }
    values = ROOT / "charts/sirocco/ci/development-values.yaml"
    return [
        f"--values={values}",
        *(f"--set-string={name}={value}" for name, value in reported.items()),
    ]


@contextmanager
def namespace() -> Iterator[None]:
    """The namespace of the test, empty at first and deleted afterwards."""
    run("kubectl", "create", "namespace", NAMESPACE)
    try:
        yield
    finally:
        print(kubectl("get", "pods,events", check=False)[-6000:])
        run("kubectl", "delete", "namespace", NAMESPACE, "--timeout=180s", check=False)


def install(*helm_options: str) -> None:
    """Installs the release and waits until all of it is ready."""
    begun_s = time.monotonic()
    helm("install", RELEASE, CHART, *settings(), *helm_options, "--wait", "--timeout=30m")
    print(f"installed and ready after {time.monotonic() - begun_s:.0f} s")
    print(kubectl("get", "pods", "--output=wide"))


def apply_secret(name: str, entries: Mapping[str, bytes]) -> None:
    """Creates a secret, or replaces its content."""
    data = {key: base64.b64encode(value).decode() for key, value in entries.items()}
    manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
    kubectl("apply", "--filename=-", given=json.dumps(manifest).encode())


def pods(component: str) -> list[dict[str, Any]]:
    """Returns the pods of a service that are not terminating."""
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={component}"
    found = json.loads(kubectl("get", "pods", "--selector", selector, "--output", "json"))
    return [one for one in found["items"] if "deletionTimestamp" not in one["metadata"]]


def replaced(service: str, victim: str) -> bool:
    """Returns whether a pod is gone and all pods of its service are ready."""
    if kubectl("get", "pod", victim, "--ignore-not-found", "--output=name"):
        return False
    output = json.loads(kubectl("get", deployment(service), "--output=json"))
    names = {one["metadata"]["name"]: one["status"].get("conditions", ()) for one in pods(service)}
    ready = [
        name
        for name, conditions in names.items()
        if any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    ]
    return len(names) == len(ready) == output["spec"]["replicas"]


def deployment(service: str) -> str:
    """Returns kubectl's name for the deployment of a service."""
    return f"deployment/{RELEASE}-{service}"


def await_rollout(service: str) -> None:
    """Waits until the pods of a service are the wanted ones, and ready."""
    print(kubectl("rollout", "status", deployment(service), "--timeout=1800s").splitlines()[-1])


def job(name: str) -> str:
    """Returns kubectl's name for the chart's newest one-off job of this name."""
    selector = f"app.kubernetes.io/instance={RELEASE},app.kubernetes.io/component={name}"
    by_age = ("--sort-by=.metadata.creationTimestamp", "--output=name")
    return kubectl("get", "jobs", "--selector", selector, *by_age).split()[-1]


def await_job_pod(name: str) -> str:
    """Waits until the pod of a job has an address; returns the pod's name."""
    selector = f"--selector=sirocco/job={name}"
    kubectl("wait", "--for=create", "--timeout=300s", "pod", selector)
    kubectl("wait", "--for=jsonpath={.status.podIP}", "--timeout=900s", "pod", selector)
    return kubectl("get", "pod", selector, "--output=name").split()[0].removeprefix("pod/")


class ApiProxy:
    """The cluster's API on a port of this machine, through which pods are reached."""

    def __enter__(self) -> Self:
        command = ["kubectl", "proxy", "--port=0"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        output = self._process.stdout.readline().split()
        if not output:
            self.__exit__(None, None, None)
            raise AssertionError("kubectl proxy has ended, see above")
        self._address = output[-1]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait()

    def port_of(self, pod: str, port: int, path: str) -> str:
        """Returns HOST:PORT/PATH through which a pod's port is reached."""
        return f"{self._address}/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{port}/proxy/{path}"


def client_archive() -> bytes:
    """Returns the client's files as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in CLIENT_FILES:
            archive.add(ROOT / name, name, filter=_sources)
    return out.getvalue()


def _sources(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member


class ClientPod:
    """A pod of the services' image in which clients run.

    Args:
        secret: The secret that the pod has at `CLIENT_SECRETS`; empty for none.
    """

    NAME = "sirocco-client"

    def __init__(self, secret: str = "") -> None:
        self._secret = secret

    def __enter__(self) -> Self:
        tag = os.environ["SIROCCO_IMAGES_TAG"]
        manifest: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.NAME},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "client",
                        "image": f"sirocco:{tag}",
                        "command": ["sleep", "infinity"],
                        "workingDir": "/tmp",
                    }
                ],
            },
        }
        if self._secret:
            spec = manifest["spec"]
            spec["volumes"] = [{"name": "secret", "secret": {"secretName": self._secret}}]
            mount = {"name": "secret", "mountPath": CLIENT_SECRETS, "readOnly": True}
            spec["containers"][0]["volumeMounts"] = [mount]
        kubectl("apply", "--filename=-", given=json.dumps(manifest).encode())
        kubectl("wait", "--for=condition=Ready", "--timeout=900s", f"pod/{self.NAME}")
        into = f"mkdir -p {CLIENT_DIRECTORY} && tar -x -C {CLIENT_DIRECTORY}"
        kubectl("exec", "-i", self.NAME, "--", "sh", "-c", into, given=client_archive())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kubectl("delete", "pod", self.NAME, "--wait=false", check=False)


def client_command(program: str, *options: str) -> tuple[str, ...]:
    """Returns the arguments of `kubectl exec` for a test program in the client's pod."""
    reported = shlex.join((*options, "--router", f"{RELEASE}-router:7070"))
    inner = f"cd {CLIENT_DIRECTORY} && exec python -m tests.kubernetes.{program} {reported}"
    return ("exec", "-i", ClientPod.NAME, "--", "sh", "-c", inner)


class Client:
    """One publisher and one subscriber in the client's pod; see `traffic.py`.

    Args:
        name: Of this run.
        seed: Of its objects.
        options: Of the connection, such as `--ca`.
    """

    def __init__(self, name: str, seed: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [
                *("kubectl", "--namespace", NAMESPACE),
                *client_command("traffic", name, seed, *options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        try:
            self._answer("start")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()

    def progress(self) -> float:
        """Waits for the matches of the next published objects; returns the seconds."""
        return float(self._ask("progress")["resumed_s"])

    def lose(self, service: str, victim: str, *options: str) -> float:
        """Deletes a pod, and continues until another one is ready in its place.

        Returns:
            The seconds until the matches of some objects arrived, of the slowest ones.
        """
        kubectl("delete", "pod", victim, "--wait=false", *options)
        slowest_s = self.progress()
        while not replaced(service, victim):
            slowest_s = max(slowest_s, self.progress())
        # Also of objects that only the successors have seen.
        return max(slowest_s, self.progress())

    def finish(self) -> int:
        """Compares everything with the oracle; returns the number of objects."""
        return int(self._ask("finish")["objects"])

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return self._answer(command)

    def _answer(self, command: str) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"{command}: the client has ended, see above"
        answer: dict[str, Any] = json.loads(line)
        assert "wrong" not in answer, answer["wrong"]
        return answer
