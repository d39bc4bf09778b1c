{#- What is no longer wanted goes first, then comes what is. -#}
include:
  - halite.addons.owned
{%- if pillar.halite.addons.metricsServer %}
  - halite.addons.metrics_server
{%- endif %}
{%- if pillar.halite.addons.localPath %}
  - halite.addons.local_path
{%- endif %}
  - halite.addons.charts
