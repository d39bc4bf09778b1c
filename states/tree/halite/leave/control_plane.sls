{#- only: orchestration -#}
{%- from 'halite/base/map.jinja' import api_server_ended with context %}
# The kubelet stops these pods when their manifests are removed. etcd's stays until etcd has removed
# the member.
{%- for component in ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler'] %}

/etc/kubernetes/manifests/{{ component }}.yaml:
  file.absent: []
{%- endfor %}

# It accepts no new connections once it has left the Service, and finishes open requests.
kube-apiserver-ended:
  cmd.run:
    - name: {{ api_server_ended() | json }}
    - onlyif: pgrep -x kube-apiserver
    - require:
        - file: /etc/kubernetes/manifests/kube-apiserver.yaml
