{#- An etcd member that runs as it is declared. -#}
{%- from 'halite/base/etcd/map.jinja' import metrics, peers with context %}
include:
  - halite.base.etcd.member

# A member that does not come up with a new manifest gets its old one back, and the run stops, so
# that the next member is not taken down, too. etcd reads its certificates again, but no CA.
etcd-ready:
  static_pod.running:
    - manifest: /etc/kubernetes/manifests/etcd.yaml
    - ready: {{ metrics }}/readyz
    - live: {{ metrics }}/livez
    - quorum: {{ peers }}
    - reads:
        - /etc/kubernetes/pki/etcd/ca.crt
    - failhard: True
    - watch:
        - file: /etc/kubernetes/manifests/etcd.yaml
