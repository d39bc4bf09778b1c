{#- Reboots a host (`ctl node reboot`); `pillar.node` is its name. `pillar.drain` has the options of
    `ctl node drain`; without it the pods stop and start with the host. -#}
{%- from 'halite/orchestrate/hooks.jinja' import hook, hooks with context %}
{%- set name = pillar.node %}
{%- set node = pillar.halite.nodes[name] %}
{%- set is_member = 'etcd' in node.roles %}
{%- set is_control_plane = 'control-plane' in node.roles %}
{%- set drain = pillar.get('drain') %}
{%- set drains = drain is mapping and node.runs.containers %}
{%- set ns = namespace(last='') %}
{%- if is_member or is_control_plane %}

# No other host joins, leaves or reboots while this one is away.
turn:
  halite.lock:
    - lock: etcd-members
{%-   set ns.last = 'turn' %}
{%- endif %}
{#- The gates of a host that will be away: etcd can do without its member, and another host has the
    virtual address. -#}
{%- macro gates(prefix, previous) %}
{%-   if is_member %}

{{ prefix }}may-be-missing:
  halite.etcd_quorum_allows:
    - node: {{ name | json }}
    - require:
        - halite: {{ previous }}
{%-   endif %}
{%-   if is_control_plane %}

{{ prefix }}vip:
  halite.vip_moved_off:
    - node: {{ name | json }}
    - timeout: 120
    - require:
        - halite: {{ prefix ~ 'may-be-missing' if is_member else previous }}
{%-   endif %}
{%- endmacro %}
{%- set last_gate = 'vip' if is_control_plane else 'may-be-missing' %}
{%- if is_member or is_control_plane %}
{{- gates('', ns.last) }}
{%-   set ns.last = last_gate %}
{%- endif %}
{%- if drains and 'pre_drain' in hooks %}
{{- hook('pre-drain', name, 'pre_drain', ns.last, 'fail') }}
{%-   set ns.last = 'pre-drain' %}
{%- endif %}
{%- if drains %}

drained:
  halite.drain:
    - node: {{ name | json }}
    - maintenance: True
{%-   for option in ['delete_emptydir_data', 'force', 'grace_period', 'timeout'] if drain[option] is defined %}
    - {{ option }}: {{ drain[option] | json }}
{%-   endfor %}
{%-   if ns.last %}
    - require:
        - halite: {{ ns.last }}
{%-   endif %}
{%-   set ns.last = 'drained' %}
{#- A drain may take minutes, in which another host may have failed. -#}
{%-   if is_member or is_control_plane %}
{{- gates('drained-', ns.last) }}
{%-     set ns.last = 'drained-' ~ last_gate %}
{%-   endif %}
{%- endif %}

{%- if is_control_plane %}

# Its requests are answered, and its clients switch to another one. A run that ends here has left
# the host without a kubelet: the same command resumes, and a highstate starts it again.
api-server:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.control_plane.aside]
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'api-server' %}
{%- endif %}
{%- if is_member %}

# A leader that vanishes costs an election. After the drain, so that the leadership does not return
# during it.
leader:
  halite.etcd_leader_moved_off:
    - node: {{ name | json }}
    - timeout: 60
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'leader' %}
{%- endif %}

rebooted:
  halite.reboot:
    - node: {{ name | json }}
    - timeout: {{ pillar.get('boot_timeout', 1200) }}
{%- if ns.last %}
    - require:
        - halite: {{ ns.last }}
{%- endif %}
{%- set ns.last = 'rebooted' %}
{%- if is_member or is_control_plane %}

# As its last highstate left it: each waits until its static pods run and are ready.
pods:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [{{ 'halite.base.etcd' if is_member }}{{ ', ' if is_member and is_control_plane }}{{ 'halite.base.control_plane.running' if is_control_plane }}]
    - require:
        - halite: rebooted
{%-   set ns.last = 'pods' %}
{%- endif %}
{%- if node.runs.containers %}

ready:
  halite.wait_for_node:
    - node: {{ name | json }}
    - timeout: 600
    - require:
        - halite: {{ ns.last }}

# Also after an interrupted run with a drain. A node that an operator has cordoned stays cordoned.
uncordoned:
  halite.uncordon:
    - node: {{ name | json }}
    - maintenance: True
    - timeout: 60
    - require:
        - halite: ready
{%-   if drains and 'post_uncordon' in hooks %}
{{- hook('post-uncordon', name, 'post_uncordon', 'uncordoned', 'fail') }}
{%-   endif %}
{%- endif %}
