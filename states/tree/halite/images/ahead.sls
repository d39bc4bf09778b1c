{#- Images of another bundle, pulled while the host still runs its current one: containerd is
    neither updated nor restarted. -#}
{%- from 'halite/images/map.jinja' import components with context %}
include:
  - halite.base.containerd.servers
  - halite.base.kubelet.kept
{%- for component in components | sort %}

{{ pillar.halite.images[component] }}:
  image.present:
    - parallel: True
    - require:
        - file: /etc/containerd/certs.d/_default/hosts.toml
{%- endfor %}
