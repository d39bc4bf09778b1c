{#- Defragments the databases of etcd's members (`ctl etcd defrag`), one member at a time;
    `pillar.member` names a single one. The master runs it by itself with `pillar.above`, the free
    part in percent, and `pillar.timeout`. -#}

# No member joins or leaves.
turn:
  halite.lock:
    - lock: etcd-members

defragmented:
  halite.etcd_defragment:
{%- if pillar.get('member') %}
    - node: {{ pillar.member }}
{%- endif %}
{%- if pillar.get('above') %}
    - above: {{ pillar.above }}
    - timeout: {{ pillar.timeout }}
{%- endif %}
    - require:
        - halite: turn
