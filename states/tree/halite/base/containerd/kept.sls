{#- Keeps the packages and the configuration of the running container runtime before others replace
    them. The host's repository has only one bundle, so they are downloaded before it changes.
    halite.base.containerd puts them back if the new ones do not serve, and removes them if they do. -#}
{%- from 'halite/map.jinja' import has_containerd with context %}
{%- from 'halite/base/containerd/kept.jinja' import directory, download, installed, record, wanted with context %}
include:
  - halite.host.repository
{%- if has_containerd and wanted.startswith('containerd=') %}

# A host whose old bundle is gone has no packages to keep, and is not left in its present state for it.
containerd-kept:
  cmd.run:
    - name: >-
        rm -rf {{ directory }} && install -d -m 0700 {{ directory }} && cd {{ directory }} && found=$({{ installed() }}) &&
        { ! test -e /etc/containerd/config.toml || cp -p /etc/containerd/config.toml .; } && {{ download() }} && sync -f . &&
        echo "$found" >packages && sync -f . ||
        echo 'cannot keep the packages of the running container runtime; they cannot be put back if the new ones do not serve'
    - onlyif: >-
        found=$({{ installed() }}); case "$found" in containerd=*)
        test "$found" != "$(printf '%s\n' {{ wanted }})" && test "$found" != "$(cat {{ record }} 2>/dev/null)";;
        *) false;; esac
    - require_in:
        - pkgrepo: halite-repository
{%- endif %}
