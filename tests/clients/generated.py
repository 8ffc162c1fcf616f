"""A read and a posting by a client that ``openapi-python-client`` made from a market's document.

Run in the generator's own environment, beside the package ``tally_client``. Prints JSON.
"""

from __future__ import annotations

import json
import sys

from tally_client import AuthenticatedClient
from tally_client.api.jobs import get_job_v1_jobs_job_id_get as get_job
from tally_client.api.jobs import post_job_v1_jobs_post as post_job
from tally_client.api.market import offers_v1_offers_get as list_offers
from tally_client.models import Job, JobBody, Offers, Problem, Spec

url, token, session_vk, consumer_vkh = sys.argv[1:]
SPEC = {
    "version": 2,
    "name": "generated",
    "kind": "job",
    "image": "sha256:" + "ab" * 32,
    "command": ["echo", "hello"],
    "resources": [{"cpu": {"least": 1000}, "memory": {"least": 256}, "disk": {"least": 0}}],
    "env": {},
    "secrets": [],
    "files": [],
    "ports": [],
    "outputs": [],
    "placement": {
        "regions": [], "isolation": "container", "min_trust": 0, "labels": {}, "providers": [],
        "not_providers": [],
    },
    "price": {"max_gpu_rate": 0, "max_core_rate": 0, "budget": 5_000_000},
    "policy": {
        "max_duration_ms": 60_000, "retry_on": [], "retry_max": 0, "idle_gpu_below": 0,
        "idle_for_ms": 0, "queue": False, "priority": 0,
    },
}  # fmt: skip

with AuthenticatedClient(base_url=url, token=token, timeout=30) as client:
    offers = list_offers.sync(client=client, limit=5)
    assert isinstance(offers, Offers), offers
    body = JobBody(Spec.from_dict(SPEC), session_vk, consumer_vkh)
    job = post_job.sync(client=client, body=body)
    assert isinstance(job, Job) and isinstance(job.spec, Spec), job
    problem = get_job.sync("job_none", client=client)
    assert isinstance(problem, Problem), problem
    told = {
        "offers": [offer.id for offer in offers.items],
        "free": sum(gpu.free_milli for offer in offers.items for gpu in offer.gpus),
        "job": job.id,
        "budget": job.budget,
        "cores": job.spec.resources[0].cpu.least,
        "refused": problem.code,
    }
    print(json.dumps(told))
