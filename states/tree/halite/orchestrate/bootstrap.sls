{#- Makes a host with a master and a minion a Ready control plane. Each step may be repeated: it
    changes only what differs. -#}
{%- from 'halite/orchestrate/map.jinja' import bootstrap with context %}

# Packages, kernel, names, firewall, virtual address. A host that has lost the data of its etcd is
# refused before any of it.
host:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.etcd.data, halite.host]

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

# The kubelet runs etcd, so one step applies both.
etcd:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.kubelet, halite.base.etcd.started]
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

# The master learns that the member has run.
etcd-known:
  halite.function:
    - tgt: {{ bootstrap }}
    - fun: saltutil.refresh_grains
    - require:
        - halite: network

# Its record, and its pod that can no longer found a cluster. The kubelet replaces a static pod only
# when the API has answered it once, and an API server that loses etcd while it starts is deaf for a
# minute: so this comes when the API is in use, while pods start.
etcd-recorded:
  halite.state:
    - tgt: {{ bootstrap }}
    - sls: [halite.base.etcd.known]
    - require:
        - halite: etcd-known

ready:
  halite.wait_for_node:
    - node: {{ bootstrap }}
    - timeout: 300
    - require:
        - halite: etcd-recorded

# The operator's own states, and states that have no step above.
custom:
  halite.state:
    - tgt: {{ bootstrap }}
    - highstate: True
    - require:
        - halite: ready
