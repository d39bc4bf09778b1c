# Prints what explains the state of a host. Every part has an end.
part() {
  printf '\n===== %s\n' "$*"
  timeout 20 "$@" 2>&1 </dev/null | tail -c 65536
}
part date --iso-8601=seconds
part uname -a
part cat /etc/os-release
part uptime
part free -m
part df -h
part ip -brief address
part ip route
part systemctl --failed --no-pager
for program in halite-master halite-minion kubelet containerd keepalived haproxy; do
  path=$(command -v "$program") && part "$path" --version
done
for unit in halite-master halite-minion halite-backup halite-backup-verify halite-registry etcd kubelet containerd keepalived haproxy nginx chrony chronyd firewalld; do
  systemctl cat "$unit" >/dev/null 2>&1 || continue
  part systemctl status --no-pager --lines 0 "$unit"
  part journalctl --no-pager --output short-iso --lines 300 --unit "$unit"
done
part ctr --namespace k8s.io containers list
part ctr --namespace k8s.io tasks list
for manifest in /etc/kubernetes/manifests/*.yaml; do
  test -e "$manifest" && part cat "$manifest"
done
for log in /var/log/pods/kube-system_*/*/*.log; do
  test -e "$log" && part tail -n 100 "$log"
done
config=/etc/kubernetes/admin.conf
if test -e $config; then
  part kubectl --kubeconfig $config --request-timeout 5s get nodes,pods --all-namespaces --output wide
  part kubectl --kubeconfig $config --request-timeout 5s get events --all-namespaces --sort-by .lastTimestamp
fi
exit 0
