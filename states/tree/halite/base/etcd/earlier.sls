{#- only: orchestration -#}
{#- Removes the host's earlier member of etcd, once etcd has removed it and lists the host as a
    learner that never started: a member that was not promoted in time, or was removed as dead. With
    the data of that member etcd would exit by itself. The data stay: `etcd.joined` sets them aside
    by the ids in their log. Only the steps that make a host a member apply this, when the ids in
    the document are those that etcd has just confirmed. Elsewhere they may be older than the member
    that runs here, which may have a vote. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/base/etcd/map.jinja' import initial_cluster, is_own_unit, joined, manifest, record, runs, still_runs, unit with context %}
include:
  - halite.base.etcd.data
{%- if joined.get('clusterId') and joined.get('memberId') %}
{#- Of the same cluster: the member of another cluster may be all that is left of it. -#}
{%- set is_earlier = "grep -qs '\"clusterId\":\"" ~ joined.clusterId ~ "\"' " ~ record ~ " && grep -q '\"memberId\":\"' " ~ record ~
                     " && ! grep -q '\"memberId\":\"" ~ joined.memberId ~ "\"' " ~ record %}

# Its first data may have arrived with its pod or unit, after which no state recorded it; and a
# record of an older version has no ids.
etcd-identified:
  etcd.recorded:
    - name: {{ record }}
    - data: /var/lib/etcd
    - member: {{ node.name | json }}
    - initial_cluster: {{ initial_cluster | json }}
    - onlyif: {{ ('test -e ' ~ manifest ~ ' || ' ~ is_own_unit) | json }}
    - require:
        - etcd: etcd-data

# An interrupted run resumes by this record. It is removed with the data.
{{ manifest }}:
  file.absent:
    - onlyif: {{ is_earlier | json }}
    - require:
        - etcd: etcd-identified

# The file of the unit is removed last.
etcd-unit:
  cmd.run:
    - name: systemctl disable --now etcd.service; rm -f {{ unit }}; systemctl daemon-reload
    - onlyif: {{ (is_own_unit ~ ' && ' ~ is_earlier) | json }}
    - require:
        - etcd: etcd-identified

# The kubelet stops a pod without its manifest. A pod whose etcd keeps exiting is started once more
# until the kubelet notices.
etcd-ended:
  cmd.run:
    - name: >-
        quiet=0; for _ in $(seq 600); do
        if {{ runs }} >/dev/null; then quiet=0; else quiet=$((quiet + 1)); fi;
        [ $quiet -lt 30 ] || exit 0; sleep 0.1; done; {{ still_runs }}
    - onlyif: {{ is_earlier | json }}
    - require:
        - file: {{ manifest }}
        - cmd: etcd-unit
{%- endif %}
