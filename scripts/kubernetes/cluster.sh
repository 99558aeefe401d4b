# A cluster of one node on this machine: etcd, API server, controllers, scheduler, kubelet and proxy
# of Kubernetes, containerd and runc of Debian, names by components/dns. Sourced after build.sh; root is needed.
# Everything of it is below $state and /run/sirocco-kubernetes, and ends with `stop_cluster`.

state=$PWD/.cache/kubernetes/state
run_dir=/run/sirocco-kubernetes
NODE=sirocco-node
# Ranges that neither engines nor other clusters give out by themselves.
NODE_IP=10.213.0.1
POD_RANGE=10.214.0.0/24
SERVICE_RANGE=10.215.0.0/24
SERVICE_FIRST=10.215.0.1
BRIDGE=sirocco-pods
DEVICE=sirocco-node

component() { # NAME ARGUMENT…: in the background, with a log and a file of its number
  local name=$1
  shift
  "$@" >"$state/$name.log" 2>&1 &
  echo $! >"$state/$name.pid"
}

# await WHAT SECONDS COMMAND…
await() {
  local what=$1 deadline=$((SECONDS + $2))
  shift 2
  until "$@" >/dev/null 2>&1; do
    if ((SECONDS > deadline)); then
      tail -n 5 "$state"/*.log >&2
      fail "Kubernetes: not in time: $what" "see the logs in .cache/kubernetes/state"
    fi
    sleep 1
  done
  say "Kubernetes: $what"
}

make_certificates() {
  local pki=$state/pki name
  mkdir -p "$pki"
  openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
  openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=sirocco-ca \
    -keyout "$pki/ca.key" -out "$pki/ca.crt" 2>/dev/null
  printf 'subjectAltName=IP:127.0.0.1,IP:%s,IP:%s,DNS:kubernetes.default.svc\n' \
    "$NODE_IP" "$SERVICE_FIRST" >"$pki/apiserver.ext"
  echo "extendedKeyUsage=clientAuth" >"$pki/admin.ext"
  cp "$pki/admin.ext" "$pki/kubelet.ext"
  local -A subjects=([apiserver]=/CN=kube-apiserver [admin]=/O=system:masters/CN=admin
    [kubelet]=/O=system:nodes/CN=system:node:$NODE)
  for name in "${!subjects[@]}"; do
    openssl req -newkey rsa:2048 -nodes -subj "${subjects[$name]}" \
      -keyout "$pki/$name.key" -out "$pki/$name.csr" 2>/dev/null
    openssl x509 -req -in "$pki/$name.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial \
      -days 30 -extfile "$pki/$name.ext" -out "$pki/$name.crt" 2>/dev/null
  done
  for name in admin kubelet; do
    cat >"$state/$name.kubeconfig" <<END
apiVersion: v1
kind: Config
current-context: sirocco
clusters:
  - name: sirocco
    cluster: {server: "https://$NODE_IP:6443", certificate-authority: $pki/ca.crt}
contexts:
  - name: sirocco
    context: {cluster: sirocco, user: $name}
users:
  - name: $name
    user: {client-certificate: $pki/$name.crt, client-key: $pki/$name.key}
END
  done
}

make_network() {
  # A bridge without ports, as not every kernel has the device `dummy`.
  ip link add "$DEVICE" type bridge 2>/dev/null || true
  ip address replace "$NODE_IP/32" dev "$DEVICE"
  ip link set "$DEVICE" up
  # The proxy has to find a way to the services' addresses before it rewrites them.
  ip route replace "$SERVICE_RANGE" dev "$DEVICE"
  sysctl -qw net.ipv4.ip_forward=1
  # Else answers between two pods of the bridge go past the proxy's translation.
  sysctl -qw net.bridge.bridge-nf-call-iptables=1 || true
  # A Docker engine that ran before leaves behind that nothing is forwarded.
  iptables -I FORWARD -i "$BRIDGE" -j ACCEPT
  iptables -I FORWARD -o "$BRIDGE" -j ACCEPT
  mkdir -p "$state/cni"
  cat >"$state/cni/10-sirocco.conflist" <<END
{"cniVersion": "0.4.0", "name": "sirocco", "plugins": [
  {"type": "bridge", "bridge": "$BRIDGE", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$state/cni-addresses",
            "ranges": [[{"subnet": "$POD_RANGE"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
}

start_containerd() {
  mkdir -p "$run_dir"
  cat >"$state/containerd.toml" <<END
version = 2
root = "$state/containerd"
state = "$run_dir/containerd"
[grpc]
  address = "$run_dir/containerd.sock"
[ttrpc]
  address = "$run_dir/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "sirocco-pause:$1"
  # Who may not lower its own score (few sandboxes let root) cannot start a pod otherwise.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
END
  component containerd containerd --config "$state/containerd.toml"
  await "containerd answers" 60 ctr --address "$run_dir/containerd.sock" version
}

start_control_plane() {
  local pki=$state/pki admin=$state/admin.kubeconfig parts=$kubernetes_bin/components
  # Its data live as long as the test: no need to wait for the disk.
  component etcd "$parts" etcd --data-dir "$state/etcd" --unsafe-no-fsync \
    --listen-client-urls http://127.0.0.1:12379 --advertise-client-urls http://127.0.0.1:12379 \
    --listen-peer-urls http://127.0.0.1:12380 --initial-advertise-peer-urls http://127.0.0.1:12380 \
    --initial-cluster default=http://127.0.0.1:12380
  component kube-apiserver "$parts" kube-apiserver --etcd-servers http://127.0.0.1:12379 \
    --advertise-address "$NODE_IP" --bind-address "$NODE_IP" --secure-port 6443 \
    --service-cluster-ip-range "$SERVICE_RANGE" --authorization-mode Node,RBAC \
    --client-ca-file "$pki/ca.crt" --allow-privileged \
    --tls-cert-file "$pki/apiserver.crt" --tls-private-key-file "$pki/apiserver.key" \
    --kubelet-preferred-address-types InternalIP \
    --kubelet-client-certificate "$pki/admin.crt" --kubelet-client-key "$pki/admin.key" \
    --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$pki/sa.key" --service-account-signing-key-file "$pki/sa.key"
  await "the API server is ready" 180 kubectl get --raw /readyz
  component kube-controller-manager "$parts" kube-controller-manager --kubeconfig "$admin" \
    --authentication-kubeconfig "$admin" --authorization-kubeconfig "$admin" \
    --service-account-private-key-file "$pki/sa.key" --root-ca-file "$pki/ca.crt" \
    --leader-elect=false --bind-address 127.0.0.1 --use-service-account-credentials
  component kube-scheduler "$parts" kube-scheduler --kubeconfig "$admin" --leader-elect=false \
    --authentication-kubeconfig "$admin" --authorization-kubeconfig "$admin" --bind-address 127.0.0.1
}

start_node() {
  local pki=$state/pki parts=$kubernetes_bin/components
  echo "nameserver $NODE_IP" >"$state/resolv.conf"
  cat >"$state/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://$run_dir/containerd.sock
cgroupDriver: cgroupfs
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: [$NODE_IP]
resolvConf: $state/resolv.conf
address: $NODE_IP
healthzBindAddress: 127.0.0.1
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $pki/ca.crt}}
authorization: {mode: Webhook}
# The node is the machine of somebody who works on it: its disk is not ours to clean up.
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 100Mi, nodefs.available: 1Gi, imagefs.available: 1Gi}
END
  component kubelet "$parts" kubelet --config "$state/kubelet.yaml" --root-dir "$state/kubelet" \
    --kubeconfig "$state/kubelet.kubeconfig" --hostname-override "$NODE" --node-ip "$NODE_IP" \
    --cert-dir "$state/kubelet-pki"
  cat >"$state/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $state/admin.kubeconfig}
mode: nftables
hostnameOverride: $NODE
clusterCIDR: $POD_RANGE
bindAddress: $NODE_IP
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0}
END
  component kube-proxy "$parts" kube-proxy --config "$state/kube-proxy.yaml"
  component dns "$kubernetes_bin/dns" -listen "$NODE_IP:53" -kubeconfig "$state/admin.kubeconfig"
  await "the node is ready" 180 kubectl wait --for=condition=Ready --timeout=1s "node/$NODE"
}

# Volumes for claims, as nobody provides them here.
make_volumes() {
  local name
  for name in one two three four five; do
    mkdir -p "$state/volumes/$name"
    # The pods' users differ.
    chmod 777 "$state/volumes/$name"
    kubectl apply -f - <<END
apiVersion: v1
kind: PersistentVolume
metadata: {name: $name}
spec:
  capacity: {storage: 20Gi}
  accessModes: [ReadWriteOnce, ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: $state/volumes/$name}
END
  done >/dev/null
}

# start_cluster TAG ARCHIVE…: the cluster, with the images out of files of `docker save`.
start_cluster() {
  local tag=$1 archive
  shift
  stop_cluster
  mkdir -p "$state"
  trap stop_cluster EXIT
  make_certificates
  export KUBECONFIG=$state/admin.kubeconfig
  make_network
  start_containerd "$tag"
  for archive in "$@"; do
    ctr --address "$run_dir/containerd.sock" --namespace k8s.io images import "$archive" >/dev/null
  done
  start_control_plane
  start_node
  make_volumes
}

end_part() { # NAME
  local pid
  pid=$(cat "$state/$1.pid" 2>/dev/null) || return 0
  # Only what we started: the number may be somebody else's by now.
  if grep -qz -e "$kubernetes_bin" -e "$state" "/proc/$pid/cmdline" 2>/dev/null; then
    kill "$pid" 2>/dev/null || true
    local tries
    for ((tries = 0; tries < 50; tries++)); do
      [[ -d /proc/$pid ]] && ! grep -q '^State:.*Z' "/proc/$pid/status" 2>/dev/null || break
      sleep 0.2
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
  rm -f "$state/$1.pid"
}

stop_cluster() {
  local name pod
  for name in kubelet kube-proxy dns kube-scheduler kube-controller-manager kube-apiserver etcd; do
    end_part "$name"
  done
  if [[ -S $run_dir/containerd.sock && -f $state/containerd.pid ]]; then
    # Pods outlive containerd: each has a process of its own that holds it.
    for pod in $(ctr --address "$run_dir/containerd.sock" -n k8s.io tasks ls -q 2>/dev/null); do
      timeout 10 ctr --address "$run_dir/containerd.sock" -n k8s.io tasks rm -f "$pod" \
        >/dev/null 2>&1 || true
    done
  fi
  end_part containerd
  # Last what would hold the directory: mounts of pods and their networks.
  awk -v at="$state/" -v run="$run_dir/" 'index($2, at) == 1 || index($2, run) == 1 {print $2}' \
    /proc/mounts | sort -r | while read -r name; do umount -l "$name" 2>/dev/null || true; done
  while iptables -D FORWARD -i "$BRIDGE" -j ACCEPT 2>/dev/null; do :; done
  while iptables -D FORWARD -o "$BRIDGE" -j ACCEPT 2>/dev/null; do :; done
  for name in ip ip6; do nft delete table "$name" kube-proxy 2>/dev/null || true; done
  ip link delete "$BRIDGE" 2>/dev/null || true
  ip link delete "$DEVICE" 2>/dev/null || true
  mkdir -p "$state"
  rm -rf "$run_dir"
  # Logs stay, so that one can see why.
  mkdir -p "$kubernetes_bin/logs"
  cp "$state"/*.log "$kubernetes_bin/logs/" 2>/dev/null || true
  rm -rf "$state"
}
