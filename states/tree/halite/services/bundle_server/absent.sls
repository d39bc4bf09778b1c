{#- only: highstate, orchestration -#}
{#- A host that does not serve bundles, or no longer does: it has none, unless it is a standby of
    the master. -#}
{%- from 'halite/map.jinja' import is_standby, bundles_directory with context %}
include:
  - halite.services.bundle_server.stopped
{%- if not is_standby %}

{{ bundles_directory }}:
  file.absent:
    - require:
        - file: /etc/nginx/conf.d/halite.conf
{%- endif %}
