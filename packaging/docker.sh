#!/usr/bin/env bash
# Makes sure that a Docker daemon answers: uses the one that does, else installs (as root) and starts dockerd.
# Idempotent and safe to call from several processes at once: one daemon a machine, guarded by a lock,
# because a second daemon would delete the first one's bridge.
# Socket: $DOCKER_HOST if set, else unix:///var/run/docker.sock. Log: /var/log/tally-dockerd.log.
set -euo pipefail

host=${DOCKER_HOST:-unix:///var/run/docker.sock}
log=/var/log/tally-dockerd.log
here=$(cd "$(dirname "$0")" && pwd)
PATH="$PATH:/usr/sbin:/sbin"

answers() { command -v docker >/dev/null && timeout 10 docker --host "$host" version --format '{{.Server.Version}}' 2>/dev/null; }

if version=$(answers); then
    echo "docker: $version answers at $host"
    exit 0
fi
case "$host" in
unix://*) ;;
*)
    echo "docker: nothing answers at DOCKER_HOST=$host, and only a local unix socket can be started" >&2
    exit 1
    ;;
esac
if [ "$(id -u)" -ne 0 ]; then
    echo "docker: nothing answers at $host; run this as root, or start Docker yourself" >&2
    exit 1
fi

exec 9>/var/lock/tally-docker.lock
flock 9
if version=$(answers); then # another caller started it while we waited
    echo "docker: $version answers at $host"
    exit 0
fi
"$here/debian.sh"

# A pid file left by a killed daemon names a dead process, or by now somebody else's: dockerd would refuse to start.
for name in docker containerd/containerd; do
    pidfile=/var/run/$name.pid
    [ "$name" = docker ] || pidfile=/var/run/docker/$name.pid
    if [ -f "$pidfile" ]; then
        comm=$(cat "/proc/$(cat "$pidfile")/comm" 2>/dev/null || true)
        case "$comm" in dockerd | containerd) ;; *) rm -f "$pidfile" ;; esac
    fi
done
mkdir -p "$(dirname "${host#unix://}")"

# cgroup v1 hierarchies are mounted by an init system; a bare container may have none.
if ! mountpoint -q /sys/fs/cgroup; then
    mount -t tmpfs -o uid=0,gid=0,mode=0755 cgroup /sys/fs/cgroup 2>/dev/null || true
    for controller in $(awk '!/^#/ && $4 == 1 { print $1 }' /proc/cgroups); do
        mkdir -p "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" 2>/dev/null || rmdir "/sys/fs/cgroup/$controller"
    done
fi

# The lock's descriptor is closed for the daemon, or it would hold the lock for its whole life.
setsid nohup dockerd --host "$host" >>"$log" 2>&1 </dev/null 9>&- &
daemon=$!
for _ in $(seq 1 300); do
    if version=$(answers); then
        echo "docker: $version started at $host (log: $log)"
        exit 0
    fi
    if ! kill -0 "$daemon" 2>/dev/null; then
        echo "docker: dockerd stopped; the end of $log:" >&2
        tail -n 20 "$log" >&2
        exit 1
    fi
    sleep 0.2
done
echo "docker: dockerd did not answer within 60 s; the end of $log:" >&2
tail -n 20 "$log" >&2
exit 1
