{#- only: orchestration -#}
{#- The last member of etcd becomes a cluster of its own (`ctl etcd recover`): etcd is started once
    with the flag for it. halite.base.etcd removes the flag again. -#}
{%- from 'halite/etcd.jinja' import etcd_is_service with context %}
{%- from 'halite/base/etcd/map.jinja' import manifest, metrics, unit with context %}
{%- set file = unit if etcd_is_service else manifest %}

{{ file }}:
  file.managed:
    - source: salt://halite/base/etcd/{{ 'etcd.service.j2' if etcd_is_service else 'etcd.yaml.j2' }}
    - template: jinja
    - context: {alone: True}
    - user: root
    - group: root
    - mode: '{{ '0644' if etcd_is_service else '0600' }}'
    - force: True
{%- if etcd_is_service %}

etcd:
  service.running:
    - watch:
        - file: {{ file }}
{%- endif %}

etcd-alone:
{%- if etcd_is_service %}
  unit.ready:
    - name: etcd
{%- else %}
  static_pod.running:
    - manifest: {{ file }}
{%- endif %}
    - ready: {{ metrics }}/readyz
    - live: {{ metrics }}/livez
    - failhard: True
    - watch:
        - {{ 'service: etcd' if etcd_is_service else 'file: ' ~ file }}
