# The kubelet ends these pods when their manifests go. etcd's stays until etcd has removed the member.
{%- for component in ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler'] %}

/etc/kubernetes/manifests/{{ component }}.yaml:
  file.absent: []
{%- endfor %}

# The API server ends open requests first. It does not hold the removal up.
kube-apiserver-ended:
  cmd.run:
    - name: for _ in $(seq 60); do pgrep -x kube-apiserver >/dev/null || exit 0; sleep 0.5; done
    - onlyif: pgrep -x kube-apiserver
    - require:
        - file: /etc/kubernetes/manifests/kube-apiserver.yaml
