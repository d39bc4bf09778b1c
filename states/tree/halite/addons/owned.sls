{#- Removes every object of a pod network, an addon or a chart that is switched off. Objects without
    Halite's mark stay. -#}
{%- from 'halite/addons/map.jinja' import sets, ours with context %}
include:
  - halite.base.kubeadm_objects

addons-owned:
  kubernetes.owned:
    - sets: {{ sets | json }}
    - among: {{ ours | json }}
    - require:
        - kubernetes: api-ready
