"""Runs containers on one network of their own, by the engine's command."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Variables of the scripts: the images to test, those that the first test has to build (in the whole
# suite, where nothing else has built them), or why there are none.
TAG = "SIROCCO_IMAGES_TAG"
BUILD = "SIROCCO_IMAGES_BUILD"
MISSING = "SIROCCO_IMAGES_MISSING"

needs_engine = pytest.mark.skipif(
    TAG not in os.environ,
    reason=os.environ.get(MISSING, "no images to test: make test-images builds them"),
)
campaign = pytest.mark.skipif(
    BUILD in os.environ, reason="for make test-images: takes minutes, and the image of Spark jobs"
)

# The rights of a pod of the chart: no root, and no writes but to /tmp.
CONFINED = (
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--tmpfs=/tmp:rw,mode=1777",
)

# From a range that neither engines nor clusters assign by themselves.
SUBNET = "10.213.77"

LOOK_S = 0.1

# A process that finds a broker whose topics have no leaders yet ends, and is restarted, as pods
# are. More restarts have another reason.
RESTARTS_MAX = 4


def tag() -> str:
    """Returns the tag of the images under test."""
    return os.environ[TAG]


def build_images() -> None:
    """Builds the images; unchanged ones are not built again."""
    wanted = os.environ.get(BUILD, "").split()
    if wanted:
        script = str(ROOT / "scripts" / "images.sh")
        reported = {**os.environ, "TAG": tag()}
        done = subprocess.run(
            [script, *wanted], env=reported, stdin=subprocess.DEVNULL, check=False
        )
        assert done.returncode == 0, "the images could not be built, see above"


def docker(*arguments: str, check: bool = True) -> str:
    """Runs the engine's command and returns its output."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"docker {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def await_true(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Waits until a condition is true."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not in {timeout_s:.0f} s: {what}"
        time.sleep(LOOK_S)


class Network:
    """A network, and the containers in it; all of it is removed at the end.

    Args:
        name: Of the network, and prefix of the names of all containers.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._hosts: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._sweep()
        docker("network", "create", f"--subnet={SUBNET}.0/24", self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for host in self._hosts:
                print(f"== {host}\n{self.log(host)[-2000:]}")
        self._sweep()

    def address(self, host: str) -> str:
        """Returns the address of a host; restarts keep it."""
        return self._hosts.setdefault(host, f"{SUBNET}.{len(self._hosts) + 10}")

    def start(
        self,
        host: str,
        image: str,
        command: Sequence[str] = (),
        *,
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Starts a container, replacing the one that had the name before."""
        docker("rm", "--force", "--volumes", self._container(host), check=False)
        reported = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        docker(
            "run",
            "--detach",
            # Has no effect after `kill` and `stop`.
            "--restart=on-failure",
            f"--name={self._container(host)}",
            f"--hostname={host}",
            f"--network={self.name}",
            f"--network-alias={host}",
            f"--ip={self.address(host)}",
            *CONFINED,
            *reported,
            *options,
            image,
            *command,
        )

    def kill(self, host: str) -> None:
        """Ends a container as by a crash."""
        docker("kill", "--signal=KILL", self._container(host))

    def stop(self, host: str) -> None:
        """Ends a container in good order."""
        docker("stop", "--time=40", self._container(host))

    def restarts(self, host: str) -> int:
        """Returns how often the engine has restarted a container that had ended by itself."""
        return int(docker("inspect", "--format={{.RestartCount}}", self._container(host)))

    def runs(self, host: str) -> bool:
        """Returns whether a container is running."""
        output = docker("inspect", "--format={{.State.Running}}", self._container(host))
        return output.strip() == "true"

    def status(self, host: str) -> int:
        """Returns the exit status of a container."""
        output = docker("inspect", "--format={{.State.ExitCode}}", self._container(host))
        return int(output)

    def run(self, host: str, *command: str) -> str:
        """Runs a command in a container and returns its output."""
        return docker("exec", self._container(host), *command)

    def log(self, host: str) -> str:
        """Returns the output of a container."""
        done = subprocess.run(
            ["docker", "logs", self._container(host)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout

    def await_http(self, host: str, path: str, timeout_s: float) -> float:
        """Waits until a host answers that it is healthy; returns the seconds."""
        begun_s = time.monotonic()
        url = f"http://{self.address(host)}:8080{path}"

        def answers() -> bool:
            try:
                with urllib.request.urlopen(url, timeout=2.0) as answer:
                    return bool(answer.status == 200)
            except OSError:
                time.sleep(1.0)  # the engine is slower to ask than the process
                assert self.restarts(host) < RESTARTS_MAX, f"{host} ends at its start"
                return False

        try:
            await_true(answers, f"{url} answers", timeout_s)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.log(host)[-3000:]}") from None
        return time.monotonic() - begun_s

    def _container(self, host: str) -> str:
        return f"{self.name}-{host}"

    def _sweep(self) -> None:
        """Removes the network and all containers of its name, also after an interrupted run."""
        left = docker("ps", "--all", "--quiet", f"--filter=name=^{self.name}-").split()
        if left:
            docker("rm", "--force", "--volumes", *left)
        docker("volume", "rm", "--force", f"{self.name}-archive", check=False)
        docker("network", "rm", self.name, check=False)
