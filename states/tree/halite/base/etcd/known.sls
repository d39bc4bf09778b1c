{#- Waits until a member whose data is on record runs as the pod that can no longer found a cluster.
    Not part of a highstate: there, nothing waits for the restart. -#}
{%- from 'halite/base/etcd/map.jinja' import metrics with context %}
{%- set state = pillar.halite.etcd.extraArgs.get('initial-cluster-state', 'existing') %}
{%- set restarted = "pgrep -f '^etcd .*[-]-initial-cluster-state=" ~ state ~ "' >/dev/null" %}
include:
  - halite.base.etcd

etcd-restarted:
  cmd.run:
    - name: >-
        for _ in $(seq 360); do {{ restarted }} && exit 0; sleep 0.5; done;
        echo 'the kubelet has not restarted etcd with its new manifest: `journalctl -u kubelet` says why' >&2; exit 1
    - unless: {{ restarted | json }}
    - require:
        - file: /etc/kubernetes/manifests/etcd.yaml
{%- if metrics.startswith('http:') %}

etcd-answers:
  http.wait_for_successful_query:
    - name: {{ metrics }}/readyz
    - status: 200
    - wait_for: 180
    - require:
        - cmd: etcd-restarted
{%- endif %}
