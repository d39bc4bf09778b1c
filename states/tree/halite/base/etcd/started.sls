{#- Waits for a member that was just declared, so that the API server finds it. Not part of a highstate:
    there, nothing waits for the restart of a pod. -#}
{%- from 'halite/base/etcd/map.jinja' import metrics with context %}
include:
  - halite.base.etcd
{%- if metrics.startswith('http:') %}

etcd-ready:
  http.wait_for_successful_query:
    - name: {{ metrics }}/readyz
    - status: 200
    - wait_for: 180
    - require:
        - file: /etc/kubernetes/manifests/etcd.yaml
{%- endif %}
