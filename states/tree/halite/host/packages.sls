{%- from 'halite/host/map.jinja' import packages, pinned, versions with context %}
{%- from 'halite/map.jinja' import is_red_hat with context %}
include:
  - halite.host.repository

# One transaction: if a package is missing, none is installed.
host-packages:
  pkg.installed:
    # The bundle has the dependencies of packages, not their recommendations.
    - install_recommends: False
    # The bundle's versions are used even if the host has others.
    - allow_erasing: True
    - allow_downgrades: True
    - prefer_bundle: True
    - pkgs:{{ '' if packages else ' []' }}
{%- for package in packages | unique | sort %}
{%- set version = versions.get(package) if package in pinned else none %}
        - {{ package }}{% if version %}: {{ version | json }}{% endif %}
{%- endfor %}
    - require:
        - pkgrepo: halite-repository
{%- if not is_red_hat %}
        - file: /etc/apt/halite.preferences
{%- endif %}
