{#- Roles to states. Within a host the order here is the order of application; `custom` comes last.

    `master` is no host: its states are Kubernetes objects, applied by the master itself. -#}
base:
  'I@node:roles:*':
    - match: compound
    - host
    - halite.minion

  'I@node:roles:bootstrap':
    - match: compound
    - halite.master

  'I@node:roles:bootstrap or I@node:roles:registry':
    - match: compound
    - halite.bundle_server

  'I@node:roles:* and not I@node:roles:bootstrap and not I@node:roles:registry':
    - match: compound
    - halite.bundle_server.gone

  'I@node:runs:containers:True':
    - match: compound
    - base.containerd
    - images
    - base.kubelet

  'I@node:roles:etcd':
    - match: compound
    - base.etcd

  'I@node:roles:control-plane':
    - match: compound
    - base.control_plane

  'master':
    - base.kubeadm_objects
    - base.network
    - base.kube_proxy
    - base.coredns
    - base.nodes
    - addons

  # The registry of the site's own images; and the operator's own states, from /etc/halite/custom.
  '* and not master':
    - match: compound
    - halite.site_registry
    - custom
