{#- Marks a node unschedulable and evicts its pods; `pillar.node` is its name. `pillar.drain` has
    the options of `ctl node drain`. -#}
{%- from 'halite/orchestrate/hooks.jinja' import hook, hooks with context %}
{%- set drain = pillar.get('drain', {}) %}
{%- if 'pre_drain' in hooks %}
{{- hook('pre-drain', pillar.node, 'pre_drain', '', 'skip') }}
{%- endif %}

drained:
  halite.drain:
    - node: {{ pillar.node | json }}
{%- for option in ['delete_emptydir_data', 'force', 'grace_period', 'timeout'] if drain[option] is defined %}
    - {{ option }}: {{ drain[option] | json }}
{%- endfor %}
{%- if 'pre_drain' in hooks %}
    - require:
        - halite: pre-drain
{%- endif %}
