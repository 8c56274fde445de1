#!/bin/sh
# Starts a machine: start_machine.sh light|whole ROOT PLACE NAME ADDRESS [OPTION...], with GATEWAY and GROUP in the
# environment; the options are systemd-nspawn's, for a whole one. Runs in namespaces of its own (mounts, network,
# processes, name), and goes on when its network cable is plugged in, which a line of input says.
set -eu
kind=$1 root=$2 place=$3 name=$4 address=$5
shift 5
read -r _
mkdir -p "$place/upper" "$place/work" "$place/root"
mount -t overlay overlay -o "lowerdir=$root,upperdir=$place/upper,workdir=$place/work" "$place/root"
ip link set lo up
ip link set eth0 up
ip addr add "$address/24" dev eth0
ip route add default via "$GATEWAY"

if [ "$kind" = light ]; then
  hostname "$name"
  cd "$place/root"
  mount -t proc proc proc
  mount -t sysfs sysfs sys || true
  mount -t tmpfs -o mode=755 tmpfs run
  mount -t tmpfs -o mode=755 tmpfs dev
  mknod -m 666 dev/null c 1 3
  mknod -m 666 dev/zero c 1 5
  mknod -m 666 dev/full c 1 7
  mknod -m 666 dev/random c 1 8
  mknod -m 666 dev/urandom c 1 9
  mknod -m 666 dev/tty c 5 0
  mkdir dev/pts dev/shm run/sshd
  mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  exec chroot . /usr/sbin/sshd -D -e -o UsePAM=no -o UseDNS=no -o MaxStartups=200:30:400 -o MaxSessions=64
fi

# A control group of its own in every hierarchy, so that kubelets of several machines do not clear away each other's.
cut -d: -f2 /proc/self/cgroup | sed s/name=// | tr , '\n' | while read -r controller; do
  folder=/sys/fs/cgroup/${controller:-unified}
  [ -n "$controller" ] || [ -d "$folder" ] || folder=/sys/fs/cgroup
  [ -d "$folder" ] || continue
  mkdir -p "$folder/$GROUP"
  for file in cpuset.cpus cpuset.mems; do
    if [ -e "$folder/$GROUP/$file" ] && [ -z "$(cat "$folder/$GROUP/$file")" ]; then
      cat "$folder/$file" > "$folder/$GROUP/$file"
    fi
  done
  echo $$ > "$folder/$GROUP/cgroup.procs"
done
mkdir -p "$place/containerd"  # a disk of its own: an overlay does not hold the upper layer of another
export SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes
# The clock is this machine's: a time service inside must not set it. runc wants keyrings and bpf.
# A reboot inside ends it with 133, as systemd's own unit for containers expects.
again=133
while [ "$again" = 133 ]; do
  again=0
  systemd-nspawn --quiet -D "$place/root" --machine="$name" --register=no --keep-unit --link-journal=no \
    --capability=all --drop-capability=CAP_SYS_TIME --system-call-filter="@keyring bpf" --bind=/dev/kmsg \
    --bind="$place/containerd:/var/lib/containerd" "$@" \
    --resolv-conf=off --timezone=off --console=pipe --boot || again=$?
done
