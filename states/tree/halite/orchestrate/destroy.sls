{#- Removes everything of Halite from all hosts (`ctl destroy`): the workers in parallel, then the
    other control planes, and the master's host last. A host that has left has no key, so a repeated
    run does not contact it. Nothing is drained and no member leaves etcd: the cluster ends as a
    whole. -#}
{%- set ns = namespace(workers=[], planes=[], last='allowed') %}
{%- for name, node in pillar.halite.nodes | dictsort if name != pillar.halite.master.node %}
{%-   if 'control-plane' in node.roles or 'etcd' in node.roles %}{% set ns.planes = ns.planes + [name] %}
{%-   else %}{% set ns.workers = ns.workers + [name] %}{% endif %}
{%- endfor %}
{%- set offline = 'skip' if pillar.get('skip_offline') else 'fail' %}
{%- set data = pillar.get('wipe_data', False) %}
{%- set taken = ['halite.leave.host'] + (['halite.leave.data'] if data else []) + (['halite.leave.packages'] if pillar.get('packages') else []) %}

# No host joins, leaves or reboots.
turn:
  halite.lock:
    - lock: etcd-members

allowed:
  halite.destroy_allowed:
    - force: {{ pillar.get('force', False) }}
    - cluster: {{ pillar.get('cluster', '') | json }}
    - offline: {{ offline }}
    - require:
        - halite: turn

# Checked on all hosts, before anything is removed from one.
mounts:
  halite.hosts_leave:
    - nodes: {{ (ns.workers + ns.planes + [pillar.halite.master.node]) | json }}
    - sls: {{ (['halite.leave.mounts'] + (['halite.leave.data_mounts'] if data else [])) | json }}
    - offline: {{ offline }}
    - require:
        - halite: allowed
{%- set ns.last = 'mounts' %}
{%- for group, nodes in [('workers', ns.workers), ('control-planes', ns.planes)] if nodes %}

{{ group }}:
  halite.hosts_leave:
    - nodes: {{ nodes | json }}
    - sls: {{ ((['halite.leave.address'] if group == 'control-planes' else []) + taken) | json }}
    - offline: {{ offline }}
    - require:
        - halite: {{ ns.last }}

# Their minions last. Each host's key is deleted with it.
{{ group }}-gone:
  halite.hosts_leave:
    - nodes: {{ nodes | json }}
    - sls: [halite.leave.minion]
    - gone: True
    - offline: {{ offline }}
    - require:
        - halite: {{ group }}
{%-   set ns.last = group ~ '-gone' %}
{%- endfor %}

# The master serves its own host until this is done.
last:
  halite.hosts_leave:
    - nodes: [{{ pillar.halite.master.node | json }}]
    - sls: {{ (['halite.leave.address'] + taken) | json }}
    - require:
        - halite: {{ ns.last }}

# A unit of that host stops the master, and removes the rest.
last-gone:
  halite.hosts_leave:
    - nodes: [{{ pillar.halite.master.node | json }}]
    - sls: [halite.leave.minion]
    - require:
        - halite: last
