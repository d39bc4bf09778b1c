{#- Where containerd pulls from; a state of its own, for when only that changes. -#}
{%- from 'halite/map.jinja' import is_kubernetes_node with context %}
{%- from 'halite/base/containerd/hosts.jinja' import registry_hosts with context %}
include:
  - halite.host.repository
{%- set certs_d = '/etc/containerd/certs.d' %}
{%- if is_kubernetes_node %}

# Read at every pull: no restart needed.
/etc/containerd/certs.d/_default/hosts.toml:
  file.managed:
    - source: salt://halite/base/containerd/hosts.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
{%- set site_registry = certs_d ~ '/' ~ pillar.halite.siteRegistry.name ~ ':' ~ pillar.halite.siteRegistry.port %}
{%- if pillar.halite.siteRegistry.address %}

# It may hold a password; and when it no longer does, the password stands in what changes.
{{ site_registry }}/hosts.toml:
  file.managed:
    - source: salt://halite/base/containerd/site-registry.toml.j2
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
{%- set kept = namespace(files=[certs_d ~ '/_default/hosts.toml']) %}
{%- for name, registry in pillar.halite.containerd.registries | dictsort %}
{%- set place = certs_d ~ '/' ~ name %}
{%- set kept.files = kept.files + [place ~ '/hosts.toml'] %}
{%- if registry.ca %}

{{ place }}/ca.crt:
  file.managed:
    - contents: {{ registry.ca | json }}
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
    - require_in:
        - file: {{ place }}/hosts.toml
{%- else %}

{{ place }}/ca.crt:
  file.absent:
    - require:
        - file: {{ place }}/hosts.toml
{%- endif %}

{{ place }}/hosts.toml:
  file.managed:
    - contents: {{ registry_hosts(name) | json }}
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
{%- endfor %}

# What is not declared any more; a directory that somebody else made stays.
{%- set gone = "grep -lsxF '# Written by Halite for containerd.registries.' " ~ certs_d ~ "/*/hosts.toml | grep -vxF -e "
               ~ (kept.files | join(' -e ')) %}
registries-gone:
  cmd.run:
    - name: {{ (gone ~ ' | while read -r file; do rm -r "${file%/*}"; done') | json }}
    - onlyif: {{ (gone ~ ' | grep -q .') | json }}
{%- endif %}
