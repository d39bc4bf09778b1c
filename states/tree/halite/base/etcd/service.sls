{#- A member as a unit of systemd. Nothing waits here for it; see halite.base.etcd. -#}
{%- from 'halite/map.jinja' import node, founds_etcd with context %}
{%- from 'halite/base/etcd/map.jinja' import manifest, runs, still_runs, unit with context %}
include:
  - halite.base.etcd.data
  - halite.base.etcd.program
  - halite.base.pki.etcd

# A member that used to be a static pod is stopped first: both use the same data and the same ports.
{{ manifest }}:
  file.absent:
    - require:
        - cmd: etcd-program

etcd-pod-ended:
  cmd.run:
    - name: >-
        for _ in $(seq 600); do {{ runs }} >/dev/null || exit 0; sleep 0.1; done; {{ still_runs }}
    - onchanges:
        - file: {{ manifest }}

{{ unit }}:
  file.managed:
    - source: salt://halite/base/etcd/etcd.service.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - cmd: etcd-program
        - cmd: etcd-pod-ended
        - file: /var/lib/etcd
        - sls: halite.base.pki.etcd
{%- if founds_etcd or node.get('etcd') %}
        - etcd: etcd-recorded
{%- else %}
        - test: etcd-not-joined
{%- endif %}

etcd:
  service.running:
    - enable: True
    - unmask: True
    - watch:
        - file: {{ unit }}
