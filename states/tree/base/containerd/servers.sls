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
{%- set site_registry = '/etc/containerd/certs.d/' ~ pillar.siteRegistry.name ~ ':' ~ pillar.siteRegistry.port %}
{%- if pillar.siteRegistry.address %}

# It may hold a password; and when it no longer does, the password stands in what changes.
{{ site_registry }}/hosts.toml:
  file.managed:
    - source: salt://base/containerd/site-registry.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0600'
    - makedirs: True
    - show_changes: False
{%- else %}

{{ site_registry }}:
  file.absent: []
{%- endif %}
{%- endif %}
