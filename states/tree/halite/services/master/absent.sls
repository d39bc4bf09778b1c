{#- only: highstate, orchestration -#}
{#- A control plane without the master, or no longer, which is no standby. What the master had there
    stays: nothing removes CAs and a store by a mistake in a document. The copy of a standby goes: it can
    be made again. -#}
{%- set directory = '/var/lib/halite/master' %}
include:
  - halite.services.backup.absent

halite-master:
  service.dead:
    - enable: False

# In this order: without the file `standby-of` the daemon would start as a master, and with the record
# of a promotion alone that would go on without a copy.
{%- set ns = namespace(last='service: halite-master') %}
{%- for name in ['promotion.json', 'standby-of', 'standby'] %}

{{ directory }}/{{ name }}:
  file.absent:
    - require:
        - {{ ns.last }}
{%-   set ns.last = 'file: ' ~ directory ~ '/' ~ name %}
{%- endfor %}

# With a store, an operator may start it again.
{%- for path in ['/etc/systemd/system/halite-master.service', '/etc/systemd/system/halite-master.service.d',
                 '/usr/local/bin/halite-master', '/etc/halite/master.yaml'] %}

{{ path }}:
  file.absent:
    - unless: test -e {{ directory }}/store.db
    - require:
        - {{ ns.last }}
{%- endfor %}

halite-master-unit-read:
  cmd.run:
    - name: systemctl daemon-reload
    - onchanges:
        - file: /etc/systemd/system/halite-master.service
        - file: /etc/systemd/system/halite-master.service.d
