{#- only: highstate, orchestration -#}
{#- A control plane that is not, or no longer, the master's host, and not a standby. The master's
    files stay there: a mistake in a document must not remove CAs and a store. The copy of a standby
    is removed: it can be made again. -#}
{%- set directory = '/var/lib/halite/master' %}
include:
  - halite.services.backup.absent
  - halite.services.master.no_metrics

halite-master:
  service.dead:
    - enable: False

# In this order: without the file `standby-of` the daemon would start as a master, and with only the
# record of a promotion it would continue without a copy.
{%- set ns = namespace(last='service: halite-master') %}
{%- for name in ['promotion.json', 'standby-of', 'standby'] %}

{{ directory }}/{{ name }}:
  file.absent:
    - require:
        - {{ ns.last }}
{%-   set ns.last = 'file: ' ~ directory ~ '/' ~ name %}
{%- endfor %}

# With a store, an operator may start it again, and it needs its identity for the operator's secrets. A standby's identity
# could still decrypt older files; another one is made when the host becomes a standby again.
{%- for path in [directory ~ '/secrets', '/etc/systemd/system/halite-master.service',
                 '/etc/systemd/system/halite-master.service.d', '/usr/local/bin/halite-master', '/etc/halite/master.yaml'] %}

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
