# Ends the container `$name` of a first start, whatever an interrupted run has left of it. The scripts that start etcd
# once begin with this.
clean() {
  ctr --namespace k8s.io task kill --signal SIGKILL $name
  ctr --namespace k8s.io task delete --force $name
  ctr --namespace k8s.io container delete $name
} >/dev/null 2>&1

