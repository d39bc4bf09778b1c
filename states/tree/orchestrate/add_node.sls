{#- From an enrolled minion to a Ready node. `node` is given by who starts this; each step may be repeated. -#}
{%- set name = pillar.node %}

enrolled:
  halite.wait_for_minion:
    - id: {{ name }}
    - timeout: 600

# The others learn its name and let it in before it knocks. A host that is down learns it from its next highstate.
peers:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master'
    - tgt_type: compound
    - sls: [host.hosts, host.firewall]
    - offline: skip
    - require:
        - halite: enrolled

host:
  halite.state:
    - tgt: {{ name }}
    - sls: [host]
    - require:
        - halite: peers

containerd:
  halite.state:
    - tgt: {{ name }}
    - sls: [base.containerd, images]
    - require:
        - halite: host

kubelet:
  halite.state:
    - tgt: {{ name }}
    - sls: [base.kubelet]
    - require:
        - halite: containerd

# Labels and taints of the new node.
node:
  halite.state:
    - tgt: master
    - sls: [base.nodes]
    - require:
        - halite: kubelet

ready:
  halite.wait_for_node:
    - node: {{ name }}
    - timeout: 300
    - require:
        - halite: node

custom:
  halite.state:
    - tgt: {{ name }}
    - highstate: True
    - require:
        - halite: ready
