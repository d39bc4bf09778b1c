{#- Upgrades the cluster to another bundle of the site, with the same minor version of Kubernetes or
    the next one: API servers first, then the objects, then all other kubelets.
    `pillar.bundle`, its version, `pillar.batch`, the number or percentage of further hosts at a
    time (otherwise the declared one), `pillar.backup` and `pillar.drain`, the options of `ctl node drain` if hosts are drained,
    are given at the start (`ctl upgrade`); so are `pillar.plan`, the confirmed plan, with which each
    turn is compared, and `pillar.pause_after`, the place of a pause. Hosts that have the bundle are
    left out, so an interrupted run resumes where it ended; only a cordon that it may have left is
    removed from them. A highstate from the bundle is recorded: the host, or with `master` the
    cluster, has it from then on.

    With `pillar.back`, `pillar.bundle` is the previous bundle, to which hosts return before the
    upgrade has ended (`ctl upgrade back`): in the reverse order, and each host with its kubelet
    first. `pillar.plan.begun` has hosts, or `master`, that record the bundle although a run has begun to
    give them another one. -#}
{%- from 'halite/orchestrate/hooks.jinja' import hook, hooks with context %}
{%- set back = pillar.get('back', False) %}
{%- set begun = pillar.get('plan', {}).get('begun', []) %}
{%- set ns = namespace(servers=[], done=[], first=[], members=[], planes=[], nodes=[], others=[], previous='servers') %}
{%- for name, node in pillar.halite.nodes | dictsort %}
{%-   set has_master = name == pillar.halite.master.node %}
{%-   if has_master or 'registry' in node.roles %}{% set ns.servers = ns.servers + [name] %}{% endif %}
{%-   if node.bundle == pillar.bundle and name not in begun %}{% set ns.done = ns.done + [name] %}
{%-   elif has_master %}{% set ns.first = ns.first + [name] %}
{%-   elif 'control-plane' in node.roles %}{% set ns.planes = ns.planes + [name] %}
{%-   elif 'etcd' in node.roles and not node.runs.containers %}{% set ns.members = ns.members + [name] %}
{%-   elif 'etcd' in node.roles %}{% set ns.nodes = ns.nodes + [name] %}
{%-   else %}{% set ns.others = ns.others + [name] %}
{%-   endif %}
{%- endfor %}
{#- The kubelet of a member of etcd that is a worker is never newer than an API server. -#}
{%- set one_by_one = ns.first + ns.members + ns.planes + ns.nodes %}
{%- set phases = ['one_by_one', 'objects', 'others'] %}
{%- if back %}
{%-   set one_by_one = one_by_one | reverse | list %}
{%-   set ns.others = ns.others | reverse | list %}
{%-   set phases = phases | reverse | list %}
{%- endif %}
{#- The only node cannot send its pods elsewhere; their containers outlive the restarts. -#}
{%- set nodes = pillar.halite.nodes | dictsort | map(attribute=1) | selectattr('runs.containers') | list %}
{%- set drain = pillar.get('drain') %}
{%- set drains = drain is mapping and nodes | length > 1 %}
{#- Whether a host that is left gets another minor version. Kubernetes supports no such kubelet under
    running pods. -#}
{%- set minor = namespace(wanted=none, changes=false) %}
{%- for held in pillar.halite.bundles if held.version == pillar.bundle %}
{%-   set minor.wanted = held.kubernetes.split('.')[:2] %}
{%- endfor %}
{%- for held in pillar.halite.bundles if minor.wanted and held.kubernetes.split('.')[:2] != minor.wanted %}
{%-   for name in one_by_one + ns.others if pillar.halite.nodes[name].bundle == held.version %}
{%-     set minor.changes = true %}
{%-   endfor %}
{%- endfor %}
{%- if minor.changes and nodes | length > 1 and not drains %}
{{- raise('a node is drained before its kubelet gets another minor version of Kubernetes; omit --no-drain') }}
{%- endif %}
{#- The bundle that a step gives. -#}
{%- macro given() %}
    - bundle: {{ pillar.bundle | json }}
{%-   if back %}
    - back: True
{%-   endif %}
{%- endmacro %}
{%- macro evicted(name, offline) %}
    - node: {{ name | json }}
    - maintenance: True
    - offline: {{ offline }}
{%-   if minor.changes %}
    - required: True
{%-   endif %}
{%-   for option in ['delete_emptydir_data', 'force', 'grace_period', 'timeout'] if drain[option] is defined %}
    - {{ option }}: {{ drain[option] | json }}
{%-   endfor %}
{%- endmacro %}
{#- The start of a turn, where a run can be paused, and ends if the plan no longer holds. -#}
{%- macro turn(id, names, previous) %}

{{ id }}:
  halite.upgrade_turn:
    - nodes: {{ names | json }}
{{- given() }}
    - require:
        - halite: {{ previous }}
{%- endmacro %}
{#- The gates of a host whose member of etcd and API server stop: etcd can do without the member, the
    member does not lead, and another host has the virtual address. While the leadership moves, etcd
    drops the writes that a follower forwards, without an answer. So the leader moves before the
    address, and to the host that takes the address next. -#}
{%- set gates = {
  'may-restart': ('halite.etcd_quorum_allows', 900),
  'leader': ('halite.etcd_leader_moved_off', 60),
  'vip': ('halite.vip_moved_off', 120),
} %}
{%- macro asked(id, gate, name, previous) %}

{{ id }}:
  {{ gates[gate][0] }}:
    - node: {{ name | json }}
    - timeout: {{ gates[gate][1] }}
    - require:
        - halite: {{ previous }}
{%- endmacro %}

{#- New pods of a host have a network, with its new runtime, before the host takes any. A return does
    not wait for that: the hosts that it has not reached may be the reason why pods do not reach them. -#}
{%- macro carries(name, previous, offline, maintenance=False) %}

{{ name }}-pod-network:
  halite.pod_network:
    - node: {{ name | json }}
{%-   if maintenance %}
    - maintenance: True
{%-   endif %}
    - offline: {{ offline }}
    - timeout: 180
    - require:
        - halite: {{ previous }}
{%- endmacro %}

# No host joins or leaves etcd until this run has ended, and no other upgrade runs.
turn:
  halite.lock:
    - lock: etcd-members

# They serve each bundle of the site; an additional server copies it, which may take a while.
servers:
  halite.state:
    - tgt: {{ ns.servers | join(',') }}
    - tgt_type: list
    - sls: [halite.services.bundle_server]
    - timeout: 7200
    - require:
        - halite: turn
{%- if pillar.halite.master.standbys %}

# A standby that becomes the master in the middle of this continues with both bundles.
standbys:
  halite.state:
    - tgt: {{ pillar.halite.master.standbys | join(',') }}
    - tgt_type: list
    - sls: [halite.services.bundle_server.copies]
    - offline: skip
    - timeout: 7200
    - require:
        - halite: servers
{%-   set ns.previous = 'standbys' %}
{%- endif %}
{%- for name in ns.done if nodes | length > 1 and pillar.halite.nodes[name].runs.containers %}
{%-   if not back %}
{{- carries(name, ns.previous, 'skip', maintenance=True) }}
{%-     set ns.previous = name ~ '-pod-network' %}
{%-   endif %}

# A run that ended after this host's highstate may have left it cordoned.
{{ name }}-uncordoned:
  halite.uncordon:
    - node: {{ name | json }}
    - maintenance: True
    - offline: skip
    - require:
        - halite: {{ ns.previous }}
{%-   set ns.previous = name ~ '-uncordoned' %}
{#- Most of these hosts never left their service in a return. -#}
{%-   if drains and not back and 'post_uncordon' in hooks %}
{{- hook(name ~ '-post-uncordon', name, 'post_uncordon', ns.previous, 'skip') }}
{%-     set ns.previous = name ~ '-post-uncordon' %}
{%-   endif %}
{%- endfor %}
{%- if pillar.get('backup') and (one_by_one or ns.others) %}

# The rollback point, before any host changes. It is read again and compared with its digest. Exit
# code 3 means that it was made, but an older one could not be removed.
backup:
  halite.function:
    - tgt: {{ pillar.halite.master.node | json }}
    - fun: cmd.run
    - arg:
        - '{ /usr/local/bin/ctl backup create || test $? -eq 3; } && /usr/local/bin/ctl backup verify'
    - timeout: 3600
    - require:
        - halite: {{ ns.previous }}
{%-   set ns.previous = 'backup' %}
{%- endif %}
{#- A host that has begun to change has had the images of its bundle, and its containerd may be what
    returns. A kubelet that stays new keeps the API servers from their return: this stops it early. -#}
{%- set fresh = begun if back else [] %}
{%- for what, all, offline in [('control-plane', one_by_one, 'fail'), ('workers', ns.others, 'fail' if back else 'skip')] %}
{%- set names = all | reject('in', fresh) | list %}
{%- if names %}

# Before any host changes: a static pod then starts at once, and an image that cannot be pulled stops
# the run here.
images-{{ what }}:
  halite.state:
    - tgt: {{ names | join(',') }}
    - tgt_type: list
    - sls: [halite.images.ahead]
{{- given() }}
    - offline: {{ offline }}
    - bare: skip
    - timeout: 3600
    - require:
        - halite: {{ ns.previous }}
{%-   set ns.previous = 'images-' ~ what %}
{%- endif %}
{%- endfor %}
{%- if minor.changes and ns.planes + ns.first %}

# Rights of the new API servers, which the old ones do without.
objects-ahead:
  halite.state:
    - tgt: master
    - sls: [halite.base.kubeadm_objects.ahead]
{{- given() }}
    - require:
        - halite: {{ ns.previous }}
{%-   set ns.previous = 'objects-ahead' %}
{%- endif %}
{%- set batch = pillar.get('batch', pillar.halite.upgrade.batch) | string %}
{%- if batch.endswith('%') %}
{%-   set size = (ns.others | length) * (batch[:-1] | int) // 100 %}
{%- else %}
{%-   set size = batch | int %}
{%- endif %}
{#- Also on a repeat after a failure behind the last control plane, but not once the objects are new. -#}
{%- set objects_left = pillar.halite.bundle.version != pillar.bundle or 'master' in begun %}
{%- set control_plane_left = one_by_one or objects_left %}
{%- set host_batches = (ns.others | select('in', fresh) | batch([size, 1] | max) | list)
    + (ns.others | reject('in', fresh) | batch([size, 1] | max) | list) %}
{%- set pauses = pillar.get('pause_after') == 'control-plane' and control_plane_left and ns.others %}
{%- for phase in phases %}
{%- for name in one_by_one if phase == 'one_by_one' %}
{%-   set is_member = 'etcd' in pillar.halite.nodes[name].roles %}
{%-   set is_control_plane = 'control-plane' in pillar.halite.nodes[name].roles %}
{%-   set is_node = pillar.halite.nodes[name].runs.containers %}
{%-   set own_gates = (['may-restart', 'leader'] if is_member else []) + (['vip'] if is_control_plane else []) %}
{{- turn(name ~ '-turn', [name], ns.previous) }}
{%-   set ns.previous = name ~ '-turn' %}
{#- One host after the other. A member that does not start gets its old manifest back, and the run
    ends there, with the cluster serving. -#}
{%-   for gate in own_gates %}
{{- asked(name ~ '-' ~ gate, gate, name, ns.previous) }}
{%-     set ns.previous = name ~ '-' ~ gate %}
{%-   endfor %}
{%-   if drains and is_node %}
{%-     if 'pre_drain' in hooks %}
{{- hook(name ~ '-pre-drain', name, 'pre_drain', ns.previous, 'fail') }}
{%-       set ns.previous = name ~ '-pre-drain' %}
{%-     endif %}

{{ name }}-drained:
  halite.drain:
{{- evicted(name, 'fail') }}
    - require:
        - halite: {{ ns.previous }}
{%-     set ns.previous = name ~ '-drained' %}
{#- A drain may take minutes, in which another host may have failed. -#}
{%-     for gate in own_gates %}
{{- asked(name ~ '-drained-' ~ gate, gate, name, ns.previous) }}
{%-       set ns.previous = name ~ '-drained-' ~ gate %}
{%-     endfor %}
{%-   endif %}
{%-   if back and is_node %}

# A kubelet or a containerd that does not start may be what the upgrade stopped at, and the static
# pods need both.
{{ name }}-kubelet:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.kubelet]
{{- given() }}
    - timeout: 3600
    - require:
        - halite: {{ ns.previous }}
{%-     set ns.previous = name ~ '-kubelet' %}
{%-   endif %}
{%-   if is_member %}

{{ name }}-etcd:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.etcd]
{{- given() }}
    - require:
        - halite: {{ ns.previous }}
{%-     set ns.previous = name ~ '-etcd' %}
{%-   endif %}
{%-   if is_control_plane %}

{{ name }}-control-plane:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.control_plane.running]
{{- given() }}
    - require:
        - halite: {{ ns.previous }}
{%-     set ns.previous = name ~ '-control-plane' %}
{%-   endif %}
{#- The new kubelet replaces the static pods once more. -#}
{%-   for gate in own_gates if minor.changes %}
{{- asked(name ~ '-' ~ gate ~ '-again', gate, name, ns.previous) }}
{%-     set ns.previous = name ~ '-' ~ gate ~ '-again' %}
{%-   endfor %}

# The kubelet, containerd, and everything else.
{{ name }}-host:
  halite.state:
    - tgt: {{ name | json }}
    - highstate: True
{{- given() }}
    - timeout: 3600
    - require:
        - halite: {{ ns.previous }}
{%-   set ns.previous = name ~ '-host' %}
{%-   if is_node %}

{{ name }}-ready:
  halite.wait_for_node:
    - node: {{ name | json }}
    - timeout: 300
    - require:
        - halite: {{ ns.previous }}
{%-     set ns.previous = name ~ '-ready' %}
{%-     if not back %}
{{- carries(name, ns.previous, 'fail') }}
{%-       set ns.previous = name ~ '-pod-network' %}
{%-     endif %}
{%-   endif %}
{%-   if is_node and nodes | length > 1 %}

# Also after an interrupted run with a drain. A node that an operator has cordoned stays cordoned.
{{ name }}-uncordoned:
  halite.uncordon:
    - node: {{ name | json }}
    - maintenance: True
    - require:
        - halite: {{ ns.previous }}
{%-     set ns.previous = name ~ '-uncordoned' %}
{%-     if drains and 'post_uncordon' in hooks %}
{{- hook(name ~ '-post-uncordon', name, 'post_uncordon', ns.previous, 'fail') }}
{%-       set ns.previous = name ~ '-post-uncordon' %}
{%-     endif %}
{%-   endif %}
{%- endfor %}
{%- if phase == 'objects' and objects_left %}

# After every API server, and before the other hosts: their kubelets are never newer than an API
# server.
objects:
  halite.state:
    - tgt: master
    - highstate: True
{{- given() }}
    - require:
        - halite: {{ ns.previous }}
{%-   set ns.previous = 'objects' %}
{%- endif %}
{%- if pauses and phase == 'others' %}

# The other hosts follow with `ctl upgrade resume`.
pause:
  halite.pause:
    - require:
        - halite: {{ ns.previous }}
{%- endif %}
{%- for names in host_batches if phase == 'others' and not pauses %}
{%-   set offline = 'fail' if back and names[0] not in begun else 'skip' %}
{{- turn('workers-' ~ loop.index ~ '-turn', names, ns.previous) }}
{%-   set ns.previous = 'workers-' ~ loop.index ~ '-turn' %}
{%-   if drains %}
{%-     for name in names if pillar.halite.nodes[name].runs.containers %}
{%-       if 'pre_drain' in hooks %}
{{- hook(name ~ '-pre-drain', name, 'pre_drain', ns.previous, offline) }}
{%-         set ns.previous = name ~ '-pre-drain' %}
{%-       endif %}

{{ name }}-drained:
  halite.drain:
{{- evicted(name, offline) }}
    - require:
        - halite: {{ ns.previous }}
{%-       set ns.previous = name ~ '-drained' %}
{%-     endfor %}
{%-   endif %}

# A host that is down keeps its record, and the next run upgrades it.
workers-{{ loop.index }}:
  halite.state:
    - tgt: {{ names | join(',') }}
    - tgt_type: list
    - highstate: True
{{- given() }}
    - offline: {{ offline }}
    - bare: skip
    - timeout: 3600
    - require:
        - halite: {{ ns.previous }}
{%-   set ns.previous = 'workers-' ~ loop.index %}
{%-   if nodes | length > 1 %}
{%-     for name in names if pillar.halite.nodes[name].runs.containers %}

{{ name }}-ready:
  halite.wait_for_node:
    - node: {{ name | json }}
    - offline: skip
    - timeout: 300
    - require:
        - halite: {{ ns.previous }}
{%-       set ns.previous = name ~ '-ready' %}
{%-       if not back %}
{{- carries(name, ns.previous, 'skip') }}
{%-         set ns.previous = name ~ '-pod-network' %}
{%-       endif %}

{{ name }}-uncordoned:
  halite.uncordon:
    - node: {{ name | json }}
    - maintenance: True
    - offline: skip
    - require:
        - halite: {{ ns.previous }}
{%-       set ns.previous = name ~ '-uncordoned' %}
{%-       if drains and 'post_uncordon' in hooks %}
{{- hook(name ~ '-post-uncordon', name, 'post_uncordon', ns.previous, 'skip') }}
{%-         set ns.previous = name ~ '-post-uncordon' %}
{%-       endif %}
{%-     endfor %}
{%-   endif %}
{%- endfor %}
{%- endfor %}
{%- if not pauses %}

# No host requests images of the previous bundle any more.
image-servers:
  halite.state:
    - tgt: '* and not L@master and ( I@halite:node:runs:containers:True or I@halite:node:roles:etcd )'
    - tgt_type: compound
    - sls: [halite.base.containerd.servers]
    - offline: skip
    - bare: skip
    - require:
        - halite: {{ ns.previous }}
{%-   if back and ns.done %}

# They have kept packages for the bundle that they do not get (`kept.jinja` of kubelet and containerd).
unkept:
  halite.function:
    - tgt: {{ ns.done | join(',') }}
    - tgt_type: list
    - fun: cmd.run
    - arg: ['rm -rf /var/lib/halite/kubelet /var/lib/halite/runtime']
    - offline: skip
    - require:
        - halite: image-servers
{%-   endif %}
{%- endif %}
