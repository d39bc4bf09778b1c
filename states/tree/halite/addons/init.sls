{#- Addons, charts and the operator's own manifests. Disabled ones are removed before anything is
    created. -#}
include:
  - halite.addons.owned
{%- if pillar.halite.addons.metricsServer %}
  - halite.addons.metrics_server
{%- endif %}
{%- if pillar.halite.addons.localPath %}
  - halite.addons.local_path
{%- endif %}
  - halite.addons.charts
  - halite.addons.manifests
