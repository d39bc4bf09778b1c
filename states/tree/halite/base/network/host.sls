{#- The files of the pod network on a host, before the kubelet, which starts its pods. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- set address = '/var/lib/halite/pod-network/address' %}
{%- if pillar.halite.cni.plugin == 'flannel' and node.get('workloadPlane') %}
{{ address }}:
  file.managed:
    - contents: |
        {{ node.workloadPlane }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

# flannel reads its address only when it starts. It may be down at this moment: pkill returns 1 if
# there is no such process.
flannel-address:
  cmd.run:
    - name: pkill -x flanneld || test $? = 1
    - onchanges:
        - file: {{ address }}

# flannel writes its file for the CNI plugin, and the routes to other nodes, when it starts or a
# node appears, and does not check them again. Each of its neighbour entries, which stay, has one
# route. A flannel that has just started is not done yet.
flannel-repaired:
  cmd.run:
    - name: pkill -x flanneld
    - onlyif: >-
        ps -C flanneld -o etimes= | awk '$1 > 30 { old = 1 } END { exit !old }' && ! { test -s /run/flannel/subnet.env &&
        test "$(ip -4 neigh show dev flannel.1 nud permanent | wc -l)" -le "$(ip -4 route show dev flannel.1 | wc -l)"; }
{%- else %}
{}
{%- endif %}
