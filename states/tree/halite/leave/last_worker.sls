{#- only: orchestration -#}
{#- The control planes take pods before the last worker is drained (`controlPlane.taint: auto`).
    Once its document is removed, `halite.base.nodes` does the same. -#}
api-ready:
  kubernetes.api_ready:
    - timeout: 120
{%- for name, node in pillar.halite.nodes | dictsort if node.taintFollowsWorkers %}

untainted-{{ name }}:
  kubernetes.node:
    - object: {{ name | json }}
    - taints: []
    - require:
        - kubernetes: api-ready
{%- endfor %}
