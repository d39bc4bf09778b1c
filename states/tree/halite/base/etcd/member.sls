{#- An etcd member, run by the kubelet as a static pod, or by systemd. Nothing waits here for it; see
    halite.base.etcd. -#}
{%- from 'halite/map.jinja' import node, founds_etcd with context %}
{%- from 'halite/etcd.jinja' import etcd_is_service with context %}
{%- from 'halite/base/etcd/map.jinja' import command, initial_cluster, is_own_unit, joined, manifest, record, unit with context %}
include:
  - halite.base.etcd.data
  - halite.base.pki.etcd
  - halite.base.etcd.{{ 'service' if etcd_is_service else 'pod' }}

/var/lib/etcd:
  file.directory:
    - user: root
    - group: root
    - mode: '0700'
    - require:
        - etcd: etcd-data

{%- if founds_etcd %}

# The first member of a cluster is started once without data, before there is a manifest. The
# manifest, or a unit, says that the cluster exists, so that an etcd whose data is lost does not
# start as a new, empty cluster, whether by a highstate or by the kubelet or systemd alone; and the
# record keeps a highstate from repairing such a host (halite.base.etcd.data). Data that nothing
# identifies as the member's own are refused.
etcd-founded:
  etcd.founded:
    - name: {{ record }}
    - image: {{ pillar.halite.images.etcd }}
    - command:
{{- command | indent(2) }}
    - data: /var/lib/etcd
    - reads: /etc/kubernetes/pki/etcd
    - member: {{ node.name | json }}
    - started_by: [{{ manifest }}, {{ unit }}]
    - require:
        - file: /var/lib/etcd
        - sls: halite.base.pki.etcd
{%- elif node.get('etcd') %}

# A host that joined does not found a cluster. It receives its data before there is a pod or unit:
# an etcd that starts with data serves at once, one that gets them as a snapshot may wait for seven
# seconds (docs/decisions/0043). The data of another member or cluster are set aside first
# (docs/decisions/0047).
etcd-joined:
  etcd.joined:
    - name: /var/lib/etcd
    - image: {{ pillar.halite.images.etcd }}
    - command:
{{- command | indent(2) }}
    - reads: /etc/kubernetes/pki/etcd
    - member: {{ node.name | json }}
    - record: {{ record }}
{%-   if joined.get('clusterId') %}
    - cluster_id: {{ joined.clusterId | json }}
{%-   endif %}
{%-   if joined.get('memberId') %}
    - member_id: {{ joined.memberId | json }}
{%-   endif %}
    - unless: test -e {{ manifest }} || {{ is_own_unit }}
    - require:
        - file: /var/lib/etcd
        - sls: halite.base.pki.etcd
{%- else %}

etcd-not-joined:
  test.fail_without_changes:
    - comment: >-
        {{ node.name }} is not a member of etcd yet, so its etcd is not started. Run the `ctl node add {{ node.name }}` that
        declared it again to make it a member.
    - failhard: True
    - require:
        - etcd: etcd-data
{%- endif %}
{%- if founds_etcd or node.get('etcd') %}

# Once it has data, it is refused without them, and with those of another member.
etcd-recorded:
  etcd.recorded:
    - name: {{ record }}
    - data: /var/lib/etcd
    - member: {{ node.name | json }}
    - initial_cluster: {{ initial_cluster | json }}
    - require:
        - etcd: {{ 'etcd-founded' if founds_etcd else 'etcd-joined' }}
{%- endif %}
