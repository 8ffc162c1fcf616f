"""The door to docker-py: a client, and its errors as ours."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import docker
import docker.errors
import requests.exceptions
import urllib3.exceptions

from adapter.core.workload import ImageRefused, RuntimeFault, RuntimeTimeout, WorkloadGone


@contextmanager
def map_docker(what: str) -> Generator[None]:
    """The one door through which docker-py's errors become ours."""
    try:
        yield
    except docker.errors.ImageNotFound as error:
        raise ImageRefused(f"{what}: {error.explanation}") from error
    except docker.errors.NotFound as error:
        raise WorkloadGone(f"{what}: {error.explanation}") from error
    except docker.errors.APIError as error:
        raise RuntimeFault(f"{what}: {error.explanation or error}") from error
    except requests.exceptions.Timeout as error:
        raise RuntimeTimeout(f"{what}: no answer from the Docker daemon") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise RuntimeFault(f"{what}: {error}") from error
    except (urllib3.exceptions.HTTPError, OSError, ValueError, KeyError) as error:
        # A daemon that dies while it answers: half a line, half a JSON, a field that is missing.
        raise RuntimeFault(f"{what}: {type(error).__name__}: {error}") from error


def connect(host: str = "", timeout_s: int = 30) -> Any:
    """A docker-py client: *host*, else DOCKER_HOST, else the usual socket."""
    base = address(host)
    with map_docker(f"connect to {base}"):
        return docker.DockerClient(base_url=base, timeout=timeout_s)


def address(host: str) -> str:
    """Where the daemon listens, as a URL."""
    return host or os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"


@contextmanager
def streamed(stream: Any) -> Generator[Iterator[bytes]]:
    """The pieces of docker-py's *stream*, whose connection ends with the block.

    docker-py's own ``close`` ends the connection and leaves its socket open, in a cycle with the
    answer that it came in: only the garbage collector would close it.
    """
    try:
        yield stream
    finally:
        stream._response.close()
