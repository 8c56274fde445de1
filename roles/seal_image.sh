#!/bin/sh
# Takes away what is this machine's own, as the last thing before it becomes an image:
#
#     ssh ubuntu@203.0.113.20 sudo sh < roles/seal_image.sh
#
# Identity, keys that let somebody in, logs, and what was noted of its own making. Nobody gets in afterwards: stop it.
set -eu
for mine in /etc/kubernetes/*.conf /etc/kubernetes/*.kubeconfig /var/lib/kubelet/kubeconfig /var/lib/kubelet/pki/*; do
  [ ! -e "$mine" ] || {
    echo "this machine is no image: it has been in a cluster: $mine is there: take one that has not" >&2
    exit 2
  }
done
cloud-init clean --logs --seed
# Empty, not gone: where it is gone, systemd takes the next boot for the first, and enables what the roles have disabled.
: > /etc/machine-id
rm -rf /etc/ssh/ssh_host_* /root/.ssh /root/.*_history
# Below homes, whose accounts may put links there: find(1) follows none, at no part of a path.
find /home -mindepth 2 -maxdepth 3 \( -path '/home/*/.ssh/authorized_keys*' -o -path '/home/*/.*_history' \) ! -type d -delete
# Which images containerd has from archives is noted beside these, and stays: nodes would fetch them anew.
rm -rf /var/lib/spillway/last-good /var/lib/spillway/booted /etc/spillway/node.yaml /etc/spillway/boot.yaml
rm -rf /var/lib/amazon/ssm/* /var/lib/dhcp/* /tmp/* /var/tmp/*
name=$(cat /proc/sys/kernel/hostname)
sed -i -E "/^(127\.|::1)/! { /[[:space:]]$name([[:space:]]|\$)/d }" /etc/hosts
rm -f /etc/hostname /etc/netplan/50-cloud-init.yaml /var/lib/systemd/random-seed /var/lib/systemd/credential.secret
apt-get clean
# Those who write logs would go on to.
systemctl stop rsyslog.service syslog.socket systemd-journald-audit.socket systemd-journald-dev-log.socket \
  systemd-journald.socket systemd-journald.service 2> /dev/null || :
find /var/log /run/log -type f -delete
sync
