{#- Keeps the packages and the configuration of the running container runtime before others replace
    them. The host's repository has only one bundle, so they are downloaded before it changes.
    halite.base.containerd puts them back if the new ones do not serve, and removes them if they do. -#}
{%- from 'halite/map.jinja' import has_containerd with context %}
{%- from 'halite/base/kept.jinja' import is_replaced_soon, keep with context %}
{%- from 'halite/base/containerd/kept.jinja' import directory, names, record, wanted with context %}
include:
  - halite.host.repository
{%- if has_containerd and wanted.startswith('containerd=') %}
{%- set configuration = '{ ! test -e /etc/containerd/config.toml || cp -p /etc/containerd/config.toml .; }' %}

# A host whose old bundle is gone has no packages to keep, and is not left in its present state for it.
containerd-kept:
  cmd.run:
    - name: >-
        {{ keep(directory, record, names, configuration) | indent(8) }} ||
        echo 'cannot keep the packages of the running container runtime; they cannot be put back if the new ones do not serve'
    - onlyif: >-
        {{ is_replaced_soon(directory, record, names, wanted) | indent(8) }}
    - require_in:
        - pkgrepo: halite-repository
{%- endif %}
