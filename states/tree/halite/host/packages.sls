{%- from 'halite/host/map.jinja' import packages, pinned, versions with context %}
include:
  - halite.host.repository

# One transaction: a package that is missing stops the run before half of them are there.
host-packages:
  pkg.installed:
    - pkgs:{{ '' if packages else ' []' }}
{%- for package in packages | unique | sort %}
{%- set version = versions.get(package) if package in pinned else none %}
        - {{ package }}{% if version %}: {{ version | json }}{% endif %}
{%- endfor %}
    - require:
        - pkgrepo: halite-repository
