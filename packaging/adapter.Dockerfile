# The adapter in a container of its own. Build in the repository's root:
#   docker build -f packaging/adapter.Dockerfile -t tally-adapter .
# Run (each flag is needed, and says what for):
#   docker run -d --name tally-adapter --restart unless-stopped \
#     --network host \                                   # its firewall rules are the host's
#     --pid host \                                       # NVML and control groups name the host's pids
#     --cap-add NET_ADMIN --cap-add SYS_ADMIN \          # iptables; MIG and device resets
#     -v /var/run/docker.sock:/var/run/docker.sock \     # workloads are siblings, not children
#     -v /var/lib/tally:/var/lib/tally \                 # the same path inside and out: it is bind-mounted
#     -v /run/lock:/run/lock \                           # one lock for every adapter on the host
#     -v /sys/fs/cgroup:/sys/fs/cgroup \
#     -v /etc/tally:/etc/tally:ro -e TALLY_PASSPHRASE_FILE=/etc/tally/passphrase \
#     --device nvidia.com/gpu=all \                      # leave out on a host without GPUs
#     tally-adapter
# Access to the Docker socket is root on the host: this container is a package, not a boundary.

ARG PYTHON=python:3.11-slim-bookworm
FROM ${PYTHON} AS build
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY marketplace marketplace
COPY adapter adapter
COPY contracts contracts
COPY web web
RUN python -m venv /opt/tally \
 && /opt/tally/bin/pip install --no-cache-dir --constraint requirements.lock '.[adapter]'

FROM ${PYTHON}
RUN apt-get update \
 && apt-get install -y --no-install-recommends iptables util-linux bubblewrap e2fsprogs ca-certificates \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/tally /opt/tally
ENV PATH=/opt/tally/bin:$PATH PYTHONUNBUFFERED=1
VOLUME ["/var/lib/tally"]
HEALTHCHECK --interval=60s --timeout=15s CMD ["tally", "adapter", "status", "--state", "/var/lib/tally", "--json"]
ENTRYPOINT ["tally", "adapter"]
CMD ["run", "--config", "/etc/tally/adapter.toml", "--state", "/var/lib/tally"]
