{#- Where containerd pulls from; a state of its own, for when only that changes. -#}
{%- from 'map.jinja' import is_kubernetes_node with context %}
include:
  - host.repository
{%- if is_kubernetes_node %}

# Read at every pull: no restart needed.
/etc/containerd/certs.d/_default/hosts.toml:
  file.managed:
    - source: salt://base/containerd/hosts.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
{%- endif %}
