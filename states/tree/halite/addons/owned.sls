{#- Removes every object of a pod network, an addon or a chart that is disabled. Objects without
    Halite's label stay. `halite.addons.manifests` adds the sets of the operator's files. -#}
{%- from 'halite/addons/map.jinja' import sets, ours with context %}
include:
  - halite.base.kubeadm_objects

addons-owned:
  kubernetes.owned:
    - sets: {{ sets | json }}
    - among: {{ ours | json }}
    - require:
        - kubernetes: api-ready
