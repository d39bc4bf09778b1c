{#- only: orchestration -#}
{#- Removes the files of a host's etcd member, once etcd has removed the member. The CA's
    certificate and the API server's client certificate stay: a control plane that stays on the host
    uses the other members with them. On a host without one, halite.leave.etcd removes the rest. The
    member's data are kept aside. -#}
{%- from 'halite/etcd.jinja' import etcd_is_external with context %}
{%- from 'halite/base/etcd/map.jinja' import is_own_unit, manifest, pki, programs, record, runs, still_runs, unit with context %}
{{ manifest }}:
  file.absent: []

# A member that is a unit of the host. Its file is removed last, so that an interrupted run starts
# over.
etcd-unit:
  cmd.run:
    - name: systemctl disable --now etcd.service; rm -rf {{ programs }}; rmdir --ignore-fail-on-non-empty /usr/local/lib/halite; rm -f {{ unit }}; systemctl daemon-reload
    - onlyif: {{ is_own_unit }}
{%- if not etcd_is_external %}

# The kubelet stops a pod without its manifest.
etcd-ended:
  cmd.run:
    - name: >-
        for _ in $(seq 600); do {{ runs }} >/dev/null || exit 0; sleep 0.1; done; {{ still_runs }}
    - onlyif: test -e /var/lib/etcd/member && {{ runs }}
    - require:
        - file: {{ manifest }}
        - cmd: etcd-unit
{%- endif %}

# A member of this host may join again one day, or another one may replace it: these data must not
# be mistaken for its own. An external etcd is not touched.
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
