{#- Connects the hosts to a master that has replaced another one (`ctl master promote`, `ctl master
    retire`). It touches nothing of etcd or Kubernetes, so it needs no quorum. Each step may be
    repeated. -#}
{%- set name = pillar.halite.master.node %}

enrolled:
  halite.wait_for_minion:
    - id: {{ name | json }}
    - timeout: 120

# From now on it serves the bundles, of which it has copies, and makes the backups.
host:
  halite.state:
    - tgt: {{ name | json }}
    - sls:
        - halite.host.firewall
        - halite.services.master
        - halite.services.master.metrics
        - halite.services.backup
        - halite.services.bundle_server
        - halite.services.masters
    - timeout: 3600
    - require:
        - halite: enrolled

# All hosts get packages and images from it, itself included. A host that is down does so with its
# next highstate.
clients:
  halite.state:
    - tgt: '* and not L@master'
    - tgt_type: compound
    - sls: [halite.host.firewall, halite.host.repository, halite.base.containerd.servers]
    - offline: skip
    - bare: skip
    - require:
        - halite: host

# The former master's host is a standby when it is back, or nothing.
masters:
  halite.state:
    - tgt: '* and not L@{{ name }} and not L@master and I@halite:node:roles:control-plane'
    - tgt_type: compound
    - sls: [halite.services.masters]
    - offline: skip
    - unmatched: skip
    - bare: skip
    - timeout: 7200
    - require:
        - halite: host

# Last, because each restarts its minion: from now on it calls this master first. No host requests
# bundles from the former master any more.
minions:
  halite.state:
    - tgt: '* and not L@master'
    - tgt_type: compound
    - sls: [halite.services.minion, halite.services.bundle_server.former]
    - offline: skip
    - require:
        - halite: clients
