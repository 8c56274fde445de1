#!/bin/bash
# One member of a kubeadm control plane, on an instance. What it is told stands in an environment file; what joins others
# goes through SecureStrings of Parameter Store, and through nothing else.
#
#   up           be a member: found the cluster, join it, or go on as the member that the data volume already holds
#   healthy      whether this member's API server and etcd answer, and the first one has handed on what joins others
#   renew-token  a fresh bootstrap token for nodes, before the last one runs out; and which version runs here
#   snapshot     a snapshot of etcd to S3, taken by the leader alone
#
# The data volume holds etcd and the cluster's keys: an instance that is replaced comes back as the same member.
set -euo pipefail
PATH=$PATH:/snap/bin # where Ubuntu 24.04 has the AWS CLI
. "${SPILLWAY_MEMBER:-/etc/spillway/control-plane.env}"

# In memory, and gone when this ends, however it ends.
scratch=$(mktemp -d -p /run)
held=""
trap 'rm -rf "$scratch" ${held:+"$held"}' EXIT

main() {
  case "${1:-}" in
    up) up ;;
    healthy) healthy ;;
    renew-token) renew_token; tell_version ;;
    snapshot) snapshot ;;
    *) echo "usage: $0 up|healthy|renew-token|snapshot" >&2; exit 2 ;;
  esac
}

up() {
  mount_data
  if [ -e "$KUBERNETES_DIR/kubelet.conf" ]; then
    systemctl enable --now kubelet
    is_handed_on || hand_on_again
  elif [ "$FIRST" = yes ] && [ "$(parameter "$CERTIFICATE_KEY_PARAMETER")" = "$NOT_YET" ]; then
    found_cluster
  else
    join_cluster
  fi
  patiently healthy
  tell_version
}

mount_data() {
  local device="/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${DATA_VOLUME/-/}"
  patiently test -e "$device"
  blkid "$device" >/dev/null || mkfs.ext4 -q -L spillway-data "$device"
  mkdir -p "$DATA_DIR"
  mountpoint -q "$DATA_DIR" || mount "$device" "$DATA_DIR"
  bind kubernetes "$KUBERNETES_DIR"
  bind kubelet "$KUBELET_DIR"
  bind etcd "$ETCD_DIR"
  chmod 700 "$ETCD_DIR"
}

bind() {
  mkdir -p "$DATA_DIR/$1" "$2"
  mountpoint -q "$2" || mount --bind "$DATA_DIR/$1" "$2"
}

found_cluster() {
  local key
  key=$(kubeadm certs certificate-key)
  with_key "$key"
  kubeadm init --config "$scratch/init.yaml" --upload-certs --skip-token-print --skip-certificate-key-print
  hand_on "$key"
}

# The machine may have gone after it founded the cluster, and with it a key that nobody else had.
hand_on_again() {
  local key
  patiently answers
  key=$(kubeadm certs certificate-key)
  with_key "$key"
  kubeadm init phase upload-certs --upload-certs --config "$scratch/init.yaml" >/dev/null
  hand_on "$key"
}

hand_on() {
  keep "$KUBECONFIG_PARAMETER" < "$KUBERNETES_DIR/admin.conf"
  renew_token
  # Last: whoever sees it may join.
  printf '%s' "$1" | keep "$CERTIFICATE_KEY_PARAMETER"
}

# The configuration with the key that certificates are uploaded under: kubeadm takes no flag for it beside a file.
with_key() {
  cat "$KUBEADM_CONFIG" - > "$scratch/init.yaml" <<END
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
certificateKey: "$1"
END
}

join_cluster() {
  patiently has_certificate_key
  # Uploaded certificates go after two hours: `renew-token` has them uploaded anew each hour, under the same key.
  parameter "$KUBECONFIG_PARAMETER" > "$scratch/kubeconfig"
  kubectl --kubeconfig "$scratch/kubeconfig" config view --raw --minify \
    -o 'jsonpath={.clusters[0].cluster.certificate-authority-data}' | base64 -d > "$scratch/ca"
  local token key hash
  token=$(parameter "$TOKEN_PARAMETER")
  key=$(parameter "$CERTIFICATE_KEY_PARAMETER")
  hash=$(openssl x509 -pubkey -noout -in "$scratch/ca" | openssl pkey -pubin -outform der | sha256sum | cut -d' ' -f1)
  cat > "$scratch/join.yaml" <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: "$ENDPOINT"
    token: "$token"
    caCertHashes: ["sha256:$hash"]
controlPlane:
  certificateKey: "$key"
END
  kubeadm join --config "$scratch/join.yaml"
}

# The stack reads what the first member has handed on as soon as this is so.
healthy() {
  answers && is_handed_on
}

is_handed_on() {
  [ "$FIRST" != yes ] || has_certificate_key
}

answers() {
  kubectl --kubeconfig "$KUBERNETES_DIR/admin.conf" --server "https://localhost:6443" --tls-server-name kubernetes \
    get --raw /readyz >/dev/null && etcd endpoint health >/dev/null
}

renew_token() {
  [ -e "$KUBERNETES_DIR/admin.conf" ] || return 0
  kubeadm token create --kubeconfig "$KUBERNETES_DIR/admin.conf" --ttl 4h | keep "$TOKEN_PARAMETER"
  local key
  key=$(parameter "$CERTIFICATE_KEY_PARAMETER")
  if [ "$key" != "$NOT_YET" ]; then
    with_key "$key"
    kubeadm init phase upload-certs --upload-certs --config "$scratch/init.yaml" >/dev/null
  fi
}

# What the API servers run, the oldest of them: `pulumi up` brings no kubelet that is newer.
tell_version() {
  [ -e "$KUBERNETES_DIR/admin.conf" ] || return 0
  local oldest
  oldest=$(kubectl --kubeconfig "$KUBERNETES_DIR/admin.conf" get pods -n kube-system -l component=kube-apiserver \
    -o 'jsonpath={range .items[*]}{.spec.containers[0].image}{"\n"}{end}' | sed 's/.*:v//' | sort -V | head -n 1)
  # The kubelet may not have told of its first pods yet; this is said again each hour.
  [ -z "$oldest" ] || printf '%s' "$oldest" | keep "$VERSION_PARAMETER"
}

snapshot() {
  local status
  status=$(etcd endpoint status -w json)
  if ! python3 -c 'import json, sys
one = json.loads(sys.argv[1])[0]["Status"]
sys.exit(one["header"]["member_id"] != one["leader"])' "$status"; then
    return 0
  fi
  held=$(mktemp -d -p "$DATA_DIR")
  local name
  name=$(date -u +%Y-%m-%dT%H-%M-%SZ).db
  etcd snapshot save "$held/$name"
  aws s3 cp --region "$REGION" --only-show-errors "$held/$name" "s3://$BUCKET/$CLUSTER/$name"
}

etcd() {
  local keys="$KUBERNETES_DIR/pki/etcd"
  etcdctl --endpoints https://127.0.0.1:2379 --cacert "$keys/ca.crt" --cert "$keys/server.crt" --key "$keys/server.key" "$@"
}

parameter() {
  aws ssm get-parameter --region "$REGION" --name "$1" --with-decryption --query Parameter.Value --output text
}

# The value comes by standard input and stays off the command line, which every process can read.
keep() {
  printf '%s' "$(cat)" > "$scratch/value"
  aws ssm put-parameter --region "$REGION" --name "$1" --value "file://$scratch/value" --type SecureString --overwrite \
    --tier Advanced --key-id "$KEY" >/dev/null
}

has_certificate_key() {
  [ "$(parameter "$CERTIFICATE_KEY_PARAMETER")" != "$NOT_YET" ]
}

patiently() {
  local end=$((SECONDS + PATIENCE))
  until "$@"; do
    if [ "$SECONDS" -ge "$end" ]; then
      echo "$*: not within $PATIENCE s" >&2
      return 1
    fi
    sleep 2
  done
}

main "$@"
