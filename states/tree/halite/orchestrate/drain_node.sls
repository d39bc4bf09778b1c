{#- Marks a node unschedulable and evicts its pods; `pillar.node` is its name. `pillar.drain` has
    the options of `ctl node drain`. -#}
{%- set drain = pillar.get('drain', {}) %}
drained:
  halite.drain:
    - node: {{ pillar.node }}
{%- for option in ['delete_emptydir_data', 'force', 'grace_period', 'timeout'] if drain[option] is defined %}
    - {{ option }}: {{ drain[option] | json }}
{%- endfor %}
