{#- Makes an enrolled minion a Ready node, or a host that serves bundles. `pillar.node`, its name,
    is given at the start (`ctl node add`), and so is `pillar.roles`, the new roles of a host that
    is already in the cluster (`ctl node roles`). Each step may be repeated. Parts that leave a host
    stay in its document until they have left, so that an interrupted command can resume. -#}
{%- from 'halite/orchestrate/leaving.jinja' import address_leaves, control_plane_leaves, member_leaves with context %}
{%- from 'halite/orchestrate/etcd_clients.jinja' import api_server_follows, api_servers, follow with context %}
{%- from 'halite/orchestrate/give_member.jinja' import give_member, given with context %}
{%- set name = pillar.node %}
{%- set node = pillar.halite.nodes.get(name, {'roles': [], 'runs': {'containers': False}}) %}
{%- set roles = pillar.get('roles') or node.roles %}
{%- set serves_bundles = 'registry' in roles %}
{%- set served_bundles = 'registry' in node.roles and not serves_bundles %}
{%- set is_kubernetes_node = node.runs.containers or roles | select('in', ['control-plane', 'worker', 'infra']) | list | length > 0 %}
{%- set is_member = 'etcd' in roles %}
{%- set is_control_plane = 'control-plane' in roles %}
{%- set stays = true if pillar.get('roles') else false %}
{%- set gets = ['control-plane', 'etcd'] | select('in', roles) | reject('in', node.roles) | list if stays else [] %}
{%- set leaves = ['control-plane', 'etcd'] | select('in', node.roles) | reject('in', roles) | list if stays else [] %}
{%- set keeps_control_plane = is_control_plane and 'control-plane' in node.roles %}
{%- set ns = namespace(last='', ready='', has_other_planes=false) %}
{%- for other, its in pillar.halite.nodes | dictsort if other != name and 'control-plane' in its.roles %}
{%-   set ns.has_other_planes = true %}
{%- endfor %}
{%- set is_only_member = is_member and not is_control_plane %}
{%- set complete = 'ready' if is_kubernetes_node else 'turn-ends' if is_only_member else 'late-peers' %}
{%- set peer_states = ['halite.host.hosts', 'halite.host.firewall'] + (['halite.host.keepalived'] if is_control_plane or stays else []) %}
{%- if gets %}

# Before its document has the roles: nothing changes for a host that cannot have them.
suited:
  halite.preflight:
    - node: {{ name | json }}
    - roles: {{ roles | json }}
    - ignore: {{ pillar.get('ignore_preflight', []) | json }}
{%-   set ns.last = 'suited' %}
{%- endif %}
{%- if leaves %}

# One change of membership at a time.
turn:
  halite.lock:
    - lock: etcd-members

# Before anything is touched: no later step checks whether the cluster can do without the host's
# part.
allowed:
  halite.node_may_leave:
    - node: {{ name | json }}
    - roles: {{ roles | json }}
    - force: {{ pillar.get('force', False) }}
    - cluster: {{ pillar.get('cluster', '') | json }}
    - require:
        - halite: turn
{%-   set ns.last = 'allowed' %}
{%-   if 'control-plane' in leaves %}
{{- address_leaves(name, ns.last) }}

# Its pods stay, and the node stays Ready.
kubelet-elsewhere:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.kubelet.elsewhere]
    - require:
        - halite: address
{{- control_plane_leaves(name, 'kubelet-elsewhere') }}
{%-     set ns.last = 'control-plane' %}
{%-   elif keeps_control_plane %}

# No member there identifies its control plane any more, and a first host no longer founds a
# cluster. Its API server uses the other members before its own is removed.
given:
  halite.control_plane_joined:
    - node: {{ name | json }}
    - require:
        - halite: allowed
{{- api_server_follows(name, 'given', 'vip', 'api-server', offline='fail') }}
{%-     set ns.last = 'api-server' %}
{%-   endif %}
{%-   if 'etcd' in leaves %}
{{- member_leaves(name, ns.last) }}
{%-     set ns.last = 'member' %}
{%-   endif %}
{%-   set member = ['halite.leave.member' if keeps_control_plane else 'halite.leave.etcd'] if 'etcd' in leaves else [] %}
{%-   set taken = member + (['halite.leave.plane'] if 'control-plane' in leaves else []) %}

left:
  halite.state:
    - tgt: {{ name | json }}
    - sls: {{ taken | json }}
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'left' %}
{%- endif %}
{%- if stays %}

# From here on, states are compiled for the new roles.
roles:
  halite.node_roles:
    - node: {{ name | json }}
    - roles: {{ roles | json }}
{%-   if leaves %}
    - left: True
{%-   endif %}
{%-   if ns.last %}
    - require:
        - halite: {{ ns.last }}
{%-   endif %}
{%- endif %}

enrolled:
  halite.wait_for_minion:
    - id: {{ name | json }}
    - timeout: 600
{%- if stays %}
    - require:
        - halite: roles
{%- endif %}

# The other hosts add its name and open their firewalls before it connects; those that may hold the
# virtual address know the new host before it could hold it. A host that is down does this with its
# next highstate. A host that joins at the same time and is still bare does it later (`late-peers`):
# its own preflight comes before its first change. The only host of a cluster has no peers.
peers:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master'
    - tgt_type: compound
    - sls: {{ peer_states | json }}
    - offline: skip
    - unmatched: skip
    - bare: skip
    - require:
        - halite: enrolled
{%- if 'etcd' in leaves %}
{{- follow('peers', but='' if keeps_control_plane else name) }}
{%- endif %}

# Nothing has changed on the host yet, and the existing hosts let it in: now its connections can be
# tested.
preflight:
  halite.preflight:
    - node: {{ name | json }}
    - ignore: {{ pillar.get('ignore_preflight', []) | json }}
    - require:
        - halite: peers

host:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.containerd.kept, halite.base.kubelet.kept, halite.host]
    - require:
        - halite: preflight
{%- if serves_bundles %}

# It copies the bundles, which may take a while, and serves them, to itself too.
registry:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.services.bundle_server]
    - timeout: 7200
    - require:
        - halite: host
{%- endif %}
{%- if is_kubernetes_node or is_member %}

containerd:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.containerd, halite.images]
    - require:
        - halite: {{ 'registry' if serves_bundles else 'host' }}
{%- if is_kubernetes_node %}

kubelet:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.kubelet]
    - require:
        - halite: containerd
{%- endif %}
{%- endif %}

# Of two hosts that join in parallel, the later one makes both known to each other: this host and
# the hosts that `peers` left out. One that is still bare does the same in its own run. So every
# host in use lets this host in before it can become a member.
late-peers:
  halite.state:
    - tgt: '* and not L@master'
    - tgt_type: compound
    - sls: {{ peer_states | json }}
    - offline: skip
    - bare: skip
    - but_done_by: peers
    - require:
        - halite: {{ 'kubelet' if is_kubernetes_node else 'containerd' if is_member else 'registry' if serves_bundles else 'host' }}
{%- if is_kubernetes_node or is_member %}
{%- if is_member %}
{%-   set ns.ready = 'late-peers' %}
{%-   if not leaves %}

# From here until the host has its vote and serves, no other host joins or leaves etcd, which takes
# one learner at a time. Everything that needs no member is already done, in parallel with other new
# hosts.
turn:
  halite.lock:
    - lock: etcd-members
    - require:
        - halite: {{ ns.ready }}
{%-     set ns.ready = 'turn' %}
{%-   endif %}

# A learner has no vote: a host that does not start cannot cost the others their quorum.
learner:
  halite.etcd_add_learner:
    - node: {{ name | json }}
    - require:
        - halite: {{ ns.ready }}

# The host may have a member that etcd has removed since, such as one that was not promoted in time:
# with its data, etcd would exit. Only before a learner that never started: the data of any other
# member may carry a vote.
earlier-member:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.etcd.earlier]
    - onchanges:
        - halite: learner
    - require:
        - halite: learner

# It receives the data of the others before its pod or unit exists. No step waits for that one: a
# learner is not ready before it has its vote.
etcd:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.etcd.member]
    - require:
        - halite: earlier-member

promoted:
  halite.etcd_promote:
    - node: {{ name | json }}
    - require:
        - halite: etcd
{%- endif %}
{%- if is_only_member %}

# It serves, as its next highstate will find it.
member:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.etcd]
    - require:
        - halite: promoted
{{- give_member('member', 'https://' ~ node.get('controlPlane') ~ ':2379', but=name) }}

turn-ends:
  halite.unlock:
    - lock: etcd-members
    - require:
        - halite: {{ given.last }}
{%- endif %}
{%- if is_control_plane %}

# Waits only for the API server, which the kubelet and the next host need. Controller-manager and
# scheduler may be in long restart backoff by then; `components` waits for them later.
control-plane:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [{{ 'halite.base.etcd, ' if is_member }}halite.base.control_plane]
    - require:
        - halite: {{ 'promoted' if is_member else 'late-peers' }}
{%- if not is_member %}

# No member of etcd shows that it has joined.
joined:
  halite.control_plane_joined:
    - node: {{ name | json }}
    - require:
        - halite: control-plane
{%- endif %}

# The kubelet of a host that already was a node used another path to the API until now.
registered:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [{{ 'halite.base.kubelet, ' if stays }}halite.base.kubelet.registers]
    - require:
        - halite: {{ 'control-plane' if is_member else 'joined' }}
{%- if is_member %}
{{- follow('control-plane', but=name) }}

# The next host need not wait for the following steps.
turn-ends:
  halite.unlock:
    - lock: etcd-members
    - require:
        - halite: {{ api_servers.last }}
{%- endif %}

# If the API's name resolves to proxies, they learn the new server.
api-clients:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master'
    - tgt_type: compound
    - sls: [halite.host.hosts]
    - offline: skip
    - unmatched: skip
    - bare: skip
    - require:
        - halite: {{ 'control-plane' if is_member else 'joined' }}
{%- endif %}

{%- if is_kubernetes_node %}

# Labels and taints of the new node.
node:
  halite.state:
    - tgt: master
    - sls: [halite.base.nodes]
    - require:
        - halite: {{ 'late-peers' if not is_control_plane else 'registered' }}
{%- if is_control_plane %}

# A standby of the master copies the bundles, which may take a while; the node becomes Ready at the same time. No
# step requires it.
masters:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.services.masters]
    - timeout: 7200
    - require:
        - halite: node

# Controller-manager and scheduler, too, run as declared.
components:
  halite.state:
    - tgt: {{ name | json }}
    - sls: [halite.base.control_plane.running]
    - require:
        - halite: node
{%- endif %}

ready:
  halite.wait_for_node:
    - node: {{ name | json }}
    - timeout: 300
    - require:
        - halite: {{ 'components' if is_control_plane else 'node' }}

{%- if is_control_plane %}
{%-   if ns.has_other_planes %}

# The other control planes learn an address at which the master may be one day. Another joining host
# may be among them, so this changes nothing else.
other-masters:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master and I@halite:node:roles:control-plane'
    - tgt_type: compound
    - sls: [halite.services.operator, halite.services.standby.masters]
    - offline: skip
    - unmatched: skip
    - bare: skip
    - require:
        - halite: ready
{%-   endif %}
{%- elif stays %}

# One of them may be a standby in place of this one: it copies the master's data, and the bundles.
other-masters:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master and I@halite:node:roles:control-plane'
    - tgt_type: compound
    - sls: [halite.services.masters]
    - offline: skip
    - unmatched: skip
    - bare: skip
    - timeout: 7200
    - require:
        - halite: ready
{%- endif %}

# The replicas of the cluster's DNS were placed while there was one node. Last, because it waits for
# pods: those of the network, which started while a standby copied, and its own.
dns:
  halite.rebalance:
    - namespace: kube-system
    - deployment: coredns
    - require:
        - halite: ready
{%- endif %}
{%- endif %}

{%- if served_bundles %}

# The other hosts stop using it before it stops serving.
former-clients:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master'
    - tgt_type: compound
    - sls: [halite.host.repository, halite.base.containerd.servers, halite.services.bundle_server.script]
    - offline: skip
    - unmatched: skip
    - bare: skip
    - require:
        - halite: {{ complete }}
{%- endif %}

# The operator's own states, and states without a step above. No step requires it: the host is
# complete without them.
custom:
  halite.state:
    - tgt: {{ name | json }}
    - highstate: True
    - require:
        - halite: {{ 'former-clients' if served_bundles else complete }}
{%- if serves_bundles %}

# From now on the other hosts use it as a bundle server too, and so do hosts that enrol later.
clients:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master'
    - tgt_type: compound
    - sls: [halite.host.repository, halite.base.containerd.servers, halite.services.bundle_server.script]
    - offline: skip
    - unmatched: skip
    - bare: skip
    - require:
        - halite: {{ complete }}
{%- endif %}
{%- if is_kubernetes_node %}

# Ready is only the kubelet's view. Last, because the operator's own states may open the ports of
# another pod network.
pod-network:
  halite.pod_network:
    - node: {{ name | json }}
    - timeout: 180
    - require:
        - halite: ready
{%- endif %}
