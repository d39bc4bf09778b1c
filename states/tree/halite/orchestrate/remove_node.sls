{#- Removes a host from the cluster (`ctl node remove`, `ctl node replace`); `pillar.node` is its
    name. A host that is `dead` is not contacted. With `keep` its document keeps what the operator
    declared, for the host that replaces it. Each step may be repeated: the document is removed when
    nothing needs it any more, and the key last, so that an interrupted removal is recognized. -#}
{%- from 'halite/orchestrate/leaving.jinja' import address_leaves, control_plane_leaves, member_leaves with context %}
{%- from 'halite/orchestrate/etcd_clients.jinja' import api_servers, follow with context %}
{%- set name = pillar.node %}
{%- set is_declared = name in pillar.halite.nodes %}
{%- set node = pillar.halite.nodes.get(name, {'roles': [], 'runs': {'containers': False}}) %}
{%- set dead = pillar.get('dead', False) %}
{%- set keep = pillar.get('keep', False) %}
{%- set is_live = is_declared and not dead %}
{%- set is_control_plane = 'control-plane' in node.roles %}
{%- set drain = pillar.get('drain', {}) %}
{%- set peers = '* and not L@' ~ name ~ ' and not L@master' %}
{%- set ns = namespace(last='allowed', other_workers=false, taint_follows=false) %}
{%- for other, its in pillar.halite.nodes | dictsort if other != name %}
{%-   set ns.other_workers = ns.other_workers or 'worker' in its.roles %}
{%-   set ns.taint_follows = ns.taint_follows or its.taintFollowsWorkers %}
{%- endfor %}

# One change of membership at a time.
turn:
  halite.lock:
    - lock: etcd-members

# Before anything is touched: no later step checks whether the cluster can do without the host.
allowed:
  halite.node_may_leave:
    - node: {{ name | json }}
    - dead: {{ dead }}
    - force: {{ pillar.get('force', False) }}
    - cluster: {{ pillar.get('cluster', '') | json }}
    # Longer than the 25 s after which the master notices that a host is silent.
    - timeout: 40
    - require:
        - halite: turn
{%- if dead %}

# If it is powered on again, it must not take part: it is cut off from the master before its place
# is free.
fenced:
  halite.key_reject:
    - node: {{ name | json }}
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'fenced' %}
{%- endif %}
{%- if is_live %}

# Nothing is removed from a file system of the operator.
mounts:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.leave.mounts{{ ', halite.leave.data_mounts' if pillar.get('wipe_data') }}]
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'mounts' %}
{%- endif %}
{%- if is_live and is_control_plane %}
{{- address_leaves(name, ns.last) }}
{%-   set ns.last = 'address' %}
{%- endif %}
{%- if 'worker' in node.roles and not keep and ns.taint_follows and not ns.other_workers %}

# Its pods have a place before they are evicted.
control-planes:
  halite.state:
    - tgt: master
    - sls: [halite.leave.last_worker]
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'control-planes' %}
{%- endif %}
{%- if is_live and node.runs.containers %}

# A kubelet that does not work, or has lost the API server of its host, stops no pod. The step
# `host` stops all containers before the node is removed.
drained:
  halite.drain:
    - node: {{ name | json }}
    - cleaned: True
{%-   for option in ['delete_emptydir_data', 'force', 'grace_period', 'timeout'] if drain[option] is defined %}
    - {{ option }}: {{ drain[option] | json }}
{%-   endfor %}
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'drained' %}
{%- endif %}
{%- if is_live and is_control_plane %}
{{- control_plane_leaves(name, ns.last) }}
{%-   set ns.last = 'control-plane' %}
{%- endif %}
{%- if 'etcd' in node.roles %}
{{- member_leaves(name, ns.last, dead) }}
{%-   set ns.last = 'member' %}
{%- endif %}
{%- if is_live %}

host:
  halite.state:
    - tgt: {{ name | json }}
    - sls:
        - halite.leave.host
{%-   if pillar.get('wipe_data') %}
        - halite.leave.data
{%-   endif %}
{%-   if pillar.get('packages') %}
        - halite.leave.packages
{%-   endif %}
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'host' %}
{%- endif %}

node:
  halite.node_delete:
    - node: {{ name | json }}
    - timeout: 120
    - require:
        - halite: {{ ns.last }}
{%- set ns.last = 'node' %}
{%- if is_live %}

# The minion last: it ends with this step. A repeated run finds it gone.
minion:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.leave.minion]
    - offline: skip
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'minion' %}
{%- endif %}

undeclared:
  halite.node_forget:
    - node: {{ name | json }}
    - keep: {{ keep }}
    - require:
        - halite: {{ ns.last }}

# From now on, the states of the others are compiled without the host.
peers:
  halite.state:
    - tgt: '{{ peers }}'
    - tgt_type: compound
    - sls: [halite.host.hosts, halite.host.firewall{{ ', halite.host.keepalived' if is_control_plane or not is_declared else '' }}]
    - offline: skip
    - bare: skip
    - require:
        - halite: undeclared
{%- set ns.last = 'peers' %}
{%- if 'etcd' in node.roles or not is_declared %}
{{- follow('peers', but=name) }}
{%-   set ns.last = api_servers.last or 'peers' %}
{%- endif %}
{%- if not keep %}

# No state removes a name from /etc/hosts that is no longer declared. Lines with other names stay.
names:
  halite.function:
    - tgt: '{{ peers }}'
    - tgt_type: compound
    - fun: cmd.run
    - arg:
        - sed -i -E '/^127[.]/!{/^[0-9.]+[[:space:]]+{{ name | replace('.', '[.]') }}[[:space:]]*$/d}' /etc/hosts
    - offline: skip
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'names' %}
{%- endif %}
{%- if 'registry' in node.roles or not is_declared %}

# The others no longer get packages and images from it, nor do hosts that enrol later.
clients:
  halite.state:
    - tgt: '{{ peers }}'
    - tgt_type: compound
    - sls: [halite.host.repository, halite.base.containerd.servers, halite.services.bundle_server.script]
    - offline: skip
    - bare: skip
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'clients' %}
{%- endif %}

{%- if is_control_plane or not is_declared %}

# One of them may be a standby in its place: it copies the master's data, and the bundles.
masters:
  halite.state:
    - tgt: '{{ peers }} and I@halite:node:roles:control-plane'
    - tgt_type: compound
    - sls: [halite.services.masters]
    - offline: skip
    - bare: skip
    - timeout: 7200
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'masters' %}
{%- endif %}

key:
  halite.key_delete:
    - node: {{ name | json }}
    - require:
        - halite: {{ ns.last }}
