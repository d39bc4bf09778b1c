{#- The master: program, unit, configuration and, once, its CAs. The master applies this to itself
    through the minion. -#}
include:
  - halite.services.ctl
  - halite.services.master.program

# CAs, service-account keys, the identities of the master and of root as operator. Valid ones stay.
# `unless` reads the files instead of running the program, which a state above may be about to
# replace, so that a test run predicts what a real one does. Identities are renewed when a third of
# their lifetime is left.
{%- set state = '/var/lib/halite/master' %}
{%- set operator = '/etc/halite/operator' %}
halite-master-init:
  cmd.run:
    - name: /usr/local/bin/halite-master init --config /etc/halite/master.yaml
    - unless:
{%- for ca in ['halite', 'kubernetes', 'etcd', 'front-proxy', 'site'] %}
{%-   for kind in ['crt', 'key'] %}
        - fun: file.file_exists
          path: {{ state }}/ca/{{ ca }}.{{ kind }}
{%-   endfor %}
{%- endfor %}
{%- for kind in ['key', 'pub'] %}
        - fun: file.file_exists
          path: {{ state }}/sa.{{ kind }}
{%- endfor %}
{%- for identity in [state ~ '/identity.crt', operator ~ '/operator.crt'] %}
        - fun: x509.current
          path: {{ identity }}
          ca: {{ operator }}/ca.crt
{%- endfor %}
        # While the CA of identities is rotated, the file has both, and the master follows by itself.
        - test -e {{ state }}/ca/halite.rotation.json || test "$(cat {{ operator }}/ca.crt)" = "$(cat {{ state }}/ca/halite.crt)"
    - require:
        - file: /usr/local/bin/halite-master
        - file: /etc/halite/master.yaml

halite-master:
  service.running:
    - enable: True
    - unmask: True
    - require:
        - cmd: halite-master-init
        - file: /etc/systemd/system/halite-master.service

# Delayed like the minion's restart: the job that changed the files ends first.
halite-master-restart:
  cmd.run:
    - name: systemctl daemon-reload && systemd-run --quiet --collect --on-active=2 --timer-property=AccuracySec=100ms systemctl restart halite-master.service
    - onlyif: test -e /var/lib/halite/minion/identity.crt
    - onchanges:
        - file: /usr/local/bin/halite-master
        - file: /etc/halite/master.yaml
        - file: /etc/systemd/system/halite-master.service
        - file: /etc/systemd/system/halite-master.service.d
    - order: last
