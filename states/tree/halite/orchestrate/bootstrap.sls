{#- Makes a host with a master and a minion a Ready control plane. Each step may be repeated: it
    changes only what differs. -#}
{%- from 'halite/orchestrate/map.jinja' import bootstrap with context %}
{%- set is_member = 'etcd' in pillar.halite.nodes[bootstrap].roles %}
{%- if pillar.halite.etcd.get('placement') == 'external' %}

# Before anything changes: without it there would be no API.
external-etcd:
  halite.etcd_answers:
    - timeout: 60
{%- endif %}

# Packages, kernel, names, firewall, virtual address. A host that has lost the data of its etcd is
# refused before any of it.
host:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [{{ 'halite.base.etcd.data, ' if is_member }}halite.base.containerd.kept, halite.base.kubelet.kept, halite.host]
{%- if pillar.halite.etcd.get('placement') == 'external' %}
    - require:
        - halite: external-etcd
{%- endif %}

# Serves the bundle: from now on every host can pull images, this one included.
images:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.services.bundle_server]
    - require:
        - halite: host

containerd:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.containerd, halite.images]
    - require:
        - halite: images

# The kubelet runs etcd, so one step applies both. The step ends while etcd starts: the next one
# needs it only later.
etcd:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.kubelet{{ ', halite.base.etcd.member' if is_member }}]
    - require:
        - halite: containerd

control-plane:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.control_plane]
    - require:
        - halite: etcd

# All Kubernetes objects: kubeadm's, the node's labels, pod network, kube-proxy, DNS, addons.
network:
  halite.state:
    - tgt: master
    - highstate: True
    - require:
        - halite: control-plane

ready:
  halite.wait_for_node:
    - node: {{ bootstrap }}
    - timeout: 300
    - require:
        - halite: network

# The operator's own states, and states without a step above.
custom:
  halite.state:
    - tgt: {{ bootstrap }}
    - highstate: True
    - require:
        - halite: ready

# Ready is only the kubelet's view. Last, because the operator's own states may open the ports of
# another pod network.
pod-network:
  halite.pod_network:
    - node: {{ bootstrap }}
    - dns: True
    - timeout: 180
    - require:
        - halite: ready
