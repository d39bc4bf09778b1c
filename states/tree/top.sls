{#- The states of each role. A host applies them in this order, `custom` last.

    `master` is a target, but not a host: its states are Kubernetes objects, and the master itself
    applies them. -#}
base:
  'I@halite:node:roles:*':
    - match: compound
    - halite.host
    - halite.services.minion
    - halite.services.minion.pages

  'I@halite:node:runs:master:True':
    - match: compound
    - halite.services.master
    - halite.services.master.metrics
    - halite.services.backup

  'I@halite:node:runs:master:True or I@halite:node:roles:registry':
    - match: compound
    - halite.services.bundle_server

  'I@halite:node:roles:* and not I@halite:node:runs:master:True and not I@halite:node:roles:registry':
    - match: compound
    - halite.services.bundle_server.absent

  'I@halite:node:runs:containers:True':
    - match: compound
    - halite.base.containerd
    - halite.images
    - halite.base.kubelet

  # A dedicated etcd host has the program from the image, and no kubelet.
  'I@halite:node:roles:etcd and not I@halite:node:runs:containers:True':
    - match: compound
    - halite.base.containerd
    - halite.images

  'I@halite:node:roles:etcd':
    - match: compound
    - halite.base.etcd

  'I@halite:node:roles:control-plane':
    - match: compound
    - halite.base.control_plane
    - halite.base.control_plane.running
    - halite.services.masters

  'master':
    - halite.base.kubeadm_objects
    - halite.base.network
    - halite.base.kube_proxy
    - halite.base.coredns
    - halite.base.nodes
    - halite.addons

  # The site registry, on its host; and the operator's own states, from /etc/halite/custom.
  '* and not master':
    - match: compound
    - halite.services.site_registry
    - custom
