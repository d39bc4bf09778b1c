{#- From a host with a master and a minion to a Ready control plane. Each step may be repeated: what is there stays. -#}
{%- from 'halite/orchestrate/map.jinja' import bootstrap with context %}

# Packages, kernel, names, firewall, virtual address.
host:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.host]

# The bundle is served: from now on every host can pull from it, this one included.
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

# The kubelet runs etcd, so they come together.
etcd:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.kubelet, halite.base.etcd]
    - require:
        - halite: containerd

control-plane:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.control_plane]
    - require:
        - halite: etcd

# Everything that lives in the API: kubeadm's objects, the node's labels, pod network, Services, DNS.
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

# The operator's own states, and whatever a later version adds to this host without a step of its own.
custom:
  halite.state:
    - tgt: {{ bootstrap }}
    - highstate: True
    - require:
        - halite: ready
