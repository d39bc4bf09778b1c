{%- from 'halite/host/map.jinja' import packages, pinned, versions with context %}
include:
  - halite.host.repository

# One transaction: if a package is missing, none is installed.
host-packages:
  pkg.installed:
    # The bundle has what packages need, not what they recommend.
    - install_recommends: False
    # Versions are those of the bundle, also where the host has others.
    - allow_erasing: True
    - allow_downgrades: True
    - pkgs:{{ '' if packages else ' []' }}
{%- for package in packages | unique | sort %}
{%- set version = versions.get(package) if package in pinned else none %}
        - {{ package }}{% if version %}: {{ version | json }}{% endif %}
{%- endfor %}
    - require:
        - pkgrepo: halite-repository
