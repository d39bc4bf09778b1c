{#- The last of Halite on a host that leaves: the minion removes itself. A unit of its own does it,
    because the minion's programs end with the minion. -#}
{%- set paths = ['/etc/halite', '/var/lib/halite', '/usr/local/bin/halite-minion', '/usr/local/bin/.halite-minion.previous',
                 '/usr/local/bin/ctl', '/etc/systemd/system/halite-minion.service',
                 '/etc/systemd/system/halite-minion.service.d'] %}
minion-leaves:
  cmd.run:
    - name: >-
        systemd-run --quiet --collect --unit=halite-leave --on-active=2 --timer-property=AccuracySec=100ms
        /bin/sh -c 'systemctl disable --now halite-minion.service; rm -rf {{ paths | join(' ') }}; systemctl daemon-reload'
