{#- Marks a node schedulable again; `pillar.node` is its name (`ctl node uncordon`). -#}
{%- from 'halite/orchestrate/hooks.jinja' import hook, hooks with context %}
uncordoned:
  halite.uncordon:
    - node: {{ pillar.node | json }}
    - timeout: 60
{%- if 'post_uncordon' in hooks %}
{{- hook('post-uncordon', pillar.node, 'post_uncordon', 'uncordoned', 'skip') }}
{%- endif %}
