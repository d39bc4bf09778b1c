{#- Labels and taints of the nodes, as kubeadm sets them (cmd/kubeadm/app/phases/markcontrolplane),
    with the operator's own from the node documents. A control-plane host that is not a worker is
    tainted unless its document says otherwise, or the cluster has no worker and declares
    `controlPlane.taint: auto`. Worker and infra nodes get a role label, which
    `kubectl get nodes` displays. -#}
include:
  - halite.base.kubeadm_objects
{%- set ns = namespace(has_workers=false) %}
{%- for node in pillar.halite.nodes.values() if 'worker' in node.roles %}
{%-   set ns.has_workers = true %}
{%- endfor %}
{%- for name, node in pillar.halite.nodes | dictsort if node.runs.containers %}
{%-   set labels = namespace(all={}) %}
{%-   for role in ['infra', 'worker'] if role in node.roles %}
{%-     set labels.all = salt['slsutil.merge'](labels.all, {'node-role.kubernetes.io/' ~ role: ''}) %}
{%-   endfor %}
{%-   if 'control-plane' in node.roles %}
{%-     set labels.all = salt['slsutil.merge'](labels.all, {
          'node-role.kubernetes.io/control-plane': '',
          'node.kubernetes.io/exclude-from-external-load-balancers': ''}) %}
{%-   endif %}
{%-   set labels.all = salt['slsutil.merge'](labels.all, node.labels) %}


node-{{ name }}:
  kubernetes.node:
    - object: {{ name | json }}
    - labels: {{ labels.all | json }}
    - taints: {{ (node.taints if ns.has_workers or not node.taintFollowsWorkers else []) | json }}
    - record: halite/labels
{%- if pillar.halite.cni.plugin == 'flannel' and node.workloadPlane %}
    # flannel takes the first address of its network that an interface has, which may be the VIP.
    - annotations:
        flannel.alpha.coreos.com/public-ip-overwrite: {{ node.workloadPlane }}
{%- endif %}
    - require:
        - kubernetes: api-ready
{%- endfor %}
