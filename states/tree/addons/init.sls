{#- What is no longer wanted goes first, then comes what is. -#}
include:
  - addons.owned
{%- if pillar.addons.metricsServer %}
  - addons.metrics_server
{%- endif %}
{%- if pillar.addons.localPath %}
  - addons.local_path
{%- endif %}
  - addons.charts
