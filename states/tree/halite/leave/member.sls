{#- only: orchestration -#}
{#- Takes from a host what its member of etcd had there, once etcd is without it. The CA's certificate stays, and the API server's
    client certificate: a control plane that stays on the host uses the other members with them. A host without one gives up the rest
    with halite.leave.etcd. The member's data are kept aside. -#}
{%- from 'halite/etcd.jinja' import etcd_is_external with context %}
{%- from 'halite/base/etcd/map.jinja' import is_own_unit, manifest, pki, programs, record, runs, still_runs, unit with context %}
{{ manifest }}:
  file.absent: []

# A member that is a unit of the host. Its file goes last, so that a run that was interrupted begins again.
etcd-unit:
  cmd.run:
    - name: systemctl disable --now etcd.service; rm -rf {{ programs }}; rmdir --ignore-fail-on-non-empty /usr/local/lib/halite; rm -f {{ unit }}; systemctl daemon-reload
    - onlyif: {{ is_own_unit }}
{%- if not etcd_is_external %}

# The kubelet ends a pod without its manifest.
etcd-ended:
  cmd.run:
    - name: >-
        for _ in $(seq 600); do {{ runs }} >/dev/null || exit 0; sleep 0.1; done; {{ still_runs }}
    - onlyif: test -e /var/lib/etcd/member && {{ runs }}
    - require:
        - file: {{ manifest }}
        - cmd: etcd-unit
{%- endif %}

# A member of this host may join again one day, or another one have its place: these data must not be taken for
# that one's. Of an external etcd nothing is touched.
etcd-data-aside:
  cmd.run:
    - name: mv -T /var/lib/etcd/member "/var/lib/etcd/member.removed-$(date +%s)"
    - onlyif: {{ 'test -e ' ~ record ~ ' && ' if etcd_is_external }}test -e /var/lib/etcd/member
    - require:
        - cmd: {{ 'etcd-unit' if etcd_is_external else 'etcd-ended' }}

{{ record }}:
  file.absent:
    - require:
        - cmd: etcd-data-aside
{%- if not etcd_is_external %}
{%-   for file in ['ca.key', 'server.crt', 'server.key', 'peer.crt', 'peer.key', 'healthcheck-client.crt', 'healthcheck-client.key'] %}

{{ pki }}{{ file }}:
  file.absent:
    - require:
        - cmd: etcd-data-aside
{%-   endfor %}
{%- endif %}
