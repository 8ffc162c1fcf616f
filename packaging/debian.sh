#!/usr/bin/env bash
# Installs the system packages that Tally uses on Debian or Ubuntu: Docker and its registry, bubblewrap, WireGuard, rclone, ext4,
# PostgreSQL and Chromium.
# Idempotent: a component whose command is already there is left alone, and apt runs only when something is missing.
# Usage: packaging/debian.sh [--check]     --check installs nothing and exits 1 when something is missing.
set -euo pipefail

# PostgreSQL keeps its server binaries off PATH; everything else is looked up by command name.
have_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

missing=()
need() { command -v "$1" >/dev/null || missing+=("$2"); }
PATH="$PATH:/usr/sbin:/sbin"
need dockerd docker.io
need docker docker.io
need containerd containerd
need runc runc
need iptables iptables
need ip iproute2
need bwrap bubblewrap
need wireguard-go wireguard-go
need wg-quick wireguard-tools
need rclone rclone
need fusermount3 fuse3
need catatonit catatonit
need mkfs.ext4 e2fsprogs
need docker-registry docker-registry
need openssl openssl
have_postgres || missing+=(postgresql)
need chromium chromium
need chromedriver chromium-driver

if [ "${#missing[@]}" -eq 0 ]; then
    echo "system packages: all present"
    exit 0
fi
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
if [ "${1:-}" = "--check" ]; then
    echo "system packages missing: ${missing[*]}"
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "system packages missing: ${missing[*]}; run as root: sudo packaging/debian.sh" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null; then
    echo "system packages missing: ${missing[*]}; apt-get is not here, install them by hand" >&2
    exit 1
fi

echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# No service may start while apt unpacks: packaging/docker.sh and the tests start what they need themselves.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt=(apt-get -o DPkg::Lock::Timeout=300 -qq)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
