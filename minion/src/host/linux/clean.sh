# Ends the container `$name` of a first start, including the remains of an interrupted run. The scripts that start etcd
# once include this first.
clean() {
  ctr --namespace k8s.io task kill --signal SIGKILL $name
  ctr --namespace k8s.io task delete --force $name
  ctr --namespace k8s.io container delete $name
} >/dev/null 2>&1

