{#- The enrolment script of a host with a bundle server, which names all servers. Nothing on a host
    that does not serve. -#}
{%- from 'halite/map.jinja' import serves_bundles with context %}
{%- if serves_bundles %}
include:
  - halite.services.bundle_server
{%- endif %}
