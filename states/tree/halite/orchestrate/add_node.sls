{#- Makes an enrolled minion a Ready node, or a host that serves bundles. `pillar.node`, its name,
    is given at the start (`ctl node add`). Each step may be repeated. -#}
{%- set name = pillar.node %}
{%- set node = pillar.halite.nodes.get(name, {'roles': [], 'runs': {'containers': False}}) %}
{%- set serves_bundles = 'registry' in node.roles %}
{%- set is_kubernetes_node = node.runs.containers %}
{%- set complete = 'ready' if is_kubernetes_node else 'registry' if serves_bundles else 'host' %}

enrolled:
  halite.wait_for_minion:
    - id: {{ name }}
    - timeout: 600

# The other hosts add its name and open their firewalls before it connects. A host that is down does
# so with its next highstate.
peers:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master'
    - tgt_type: compound
    - sls: [halite.host.hosts, halite.host.firewall]
    - offline: skip
    - require:
        - halite: enrolled

host:
  halite.state:
    - tgt: {{ name }}
    - sls: [halite.host]
    - require:
        - halite: peers
{%- if serves_bundles %}

# It copies the bundles, which may take a while, and serves them, to itself too.
registry:
  halite.state:
    - tgt: {{ name }}
    - sls: [halite.services.bundle_server]
    - timeout: 7200
    - require:
        - halite: host
{%- endif %}
{%- if is_kubernetes_node %}

containerd:
  halite.state:
    - tgt: {{ name }}
    - sls: [halite.base.containerd, halite.images]
    - require:
        - halite: {{ 'registry' if serves_bundles else 'host' }}

kubelet:
  halite.state:
    - tgt: {{ name }}
    - sls: [halite.base.kubelet]
    - require:
        - halite: containerd

# Labels and taints of the new node.
node:
  halite.state:
    - tgt: master
    - sls: [halite.base.nodes]
    - require:
        - halite: kubelet

ready:
  halite.wait_for_node:
    - node: {{ name }}
    - timeout: 300
    - require:
        - halite: node
{%- endif %}

# The operator's own states, and states that have no step above. No step requires it: the host is
# complete without them.
custom:
  halite.state:
    - tgt: {{ name }}
    - highstate: True
    - require:
        - halite: {{ complete }}
{%- if serves_bundles %}

# From now on the other hosts use it as a bundle server too.
clients:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master'
    - tgt_type: compound
    - sls: [halite.host.repository, halite.base.containerd.servers]
    - offline: skip
    - require:
        - halite: {{ complete }}
{%- endif %}
