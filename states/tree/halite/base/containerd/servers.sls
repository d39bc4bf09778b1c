{#- The registries that containerd pulls from. Applied alone when only the servers change, without a
    restart of containerd. -#}
{%- from 'halite/map.jinja' import has_containerd, is_kubernetes_node with context %}
{%- from 'halite/base/containerd/hosts.jinja' import registry_hosts with context %}
include:
  - halite.host.repository
  # It changes the repository, also in a run without the rest of containerd.
  - halite.base.containerd.kept
{%- set certs_d = '/etc/containerd/certs.d' %}
{%- if has_containerd %}

# containerd reads it at every pull, so no restart is needed.
/etc/containerd/certs.d/_default/hosts.toml:
  file.managed:
    - source: salt://halite/base/containerd/hosts.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
{%- set site_registry = certs_d ~ '/' ~ pillar.halite.siteRegistry.name ~ ':' ~ pillar.halite.siteRegistry.port %}
{%- if is_kubernetes_node and pillar.halite.siteRegistry.address %}

# May contain a password. `show_changes: False`, because a diff would print the old one.
{{ site_registry }}/hosts.toml:
  file.managed:
    - source: salt://halite/base/containerd/site-registry.toml.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0600'
    - force: True
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
    - force: True
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
    - force: True
    - makedirs: True
{%- endfor %}

# Removes registries that are no longer declared. Directories without Halite's mark stay.
{%- set undeclared = "grep -lsxF '# Written by Halite for containerd.registries.' " ~ certs_d ~ "/*/hosts.toml | grep -vxF -e "
               ~ (kept.files | join(' -e ')) %}
containerd-registries-absent:
  cmd.run:
    - name: {{ (undeclared ~ ' | while read -r file; do rm -r "${file%/*}"; done') | json }}
    - onlyif: {{ (undeclared ~ ' | grep -q .') | json }}
{%- endif %}
