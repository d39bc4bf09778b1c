# The kubelet ends these pods when their manifests go. etcd's stays until etcd has removed the member.
{%- for component in ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler'] %}

/etc/kubernetes/manifests/{{ component }}.yaml:
  file.absent: []
{%- endfor %}

# The API server takes no new connections once it has left the Service, and ends open requests. Open
# watches would hold it for all of the 30 seconds after which the kubelet kills it: two seconds are
# enough for the others, as with its option --shutdown-send-retry-after.
kube-apiserver-ended:
  cmd.run:
    - name: >-
        for _ in $(seq 60); do ss -Hltn 'sport = :{{ pillar.halite.apiServer.port }}' | grep -q . || break; sleep 0.5; done;
        for _ in $(seq 4); do pgrep -x kube-apiserver >/dev/null || exit 0; sleep 0.5; done
    - onlyif: pgrep -x kube-apiserver
    - require:
        - file: /etc/kubernetes/manifests/kube-apiserver.yaml
