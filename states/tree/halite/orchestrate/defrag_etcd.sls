{#- Gives the free pages in the databases of etcd's members back (`ctl etcd defrag`), one member at a time; `pillar.member` names a
    single one. -#}

# No member joins or leaves.
turn:
  halite.lock:
    - lock: etcd-members

defragmented:
  halite.etcd_defragment:
{%- if pillar.get('member') %}
    - node: {{ pillar.member }}
{%- endif %}
    - require:
        - halite: turn
