{#- Makes a cluster of etcd's last member (`ctl etcd recover`); `pillar.node` is its host. The
    members without which etcd has no quorum are forgotten, and come back as new ones. A repeated
    run forces it once more, which changes nothing. -#}
{%- set name = pillar.node %}

# No member joins or leaves.
turn:
  halite.lock:
    - lock: etcd-members

allowed:
  halite.etcd_may_be_alone:
    - node: {{ name | json }}
    - force: {{ pillar.get('force', False) }}
    - cluster: {{ pillar.get('cluster', '') | json }}
    - timeout: 120
    - require:
        - halite: turn

forced:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.etcd.alone]
    - require:
        - halite: allowed

alone:
  halite.etcd_wait_alone:
    - node: {{ name | json }}
    - timeout: 120
    - require:
        - halite: forced

# With the flag, each start would forget the members that joined since.
member:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.etcd]
    - require:
        - halite: alone

serves:
  halite.etcd_wait_alone:
    - node: {{ name | json }}
    - timeout: 120
    - require:
        - halite: member
