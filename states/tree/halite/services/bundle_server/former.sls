{#- Leftovers of the bundle server on a host that does not serve bundles, or no longer does: the
    former master's host, without the role `registry`. Nothing on a host that serves. -#}
{%- from 'halite/map.jinja' import serves_bundles with context %}
{%- if not serves_bundles %}
include:
  - halite.services.bundle_server.absent
{%- endif %}
