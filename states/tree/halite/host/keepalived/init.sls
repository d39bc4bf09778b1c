{#- The virtual address of the API, held by one of the control-plane hosts. Unicast: the network
    needs no multicast, and keepalived accepts only the named peers. It needs neither etcd nor the
    API, so it works at a cold start. -#}
{%- from 'halite/map.jinja' import node with context %}
{%- from 'halite/cluster.jinja' import runs_keepalived with context %}
{%- set ns = namespace(interface='') %}
{%- for interface, addresses in grains.get('ip4_interfaces', {}) | dictsort if node.get('controlPlane') in addresses %}
{%-   set ns.interface = interface %}
{%- endfor %}
include:
  - halite.host.packages
{%- if runs_keepalived and not ns.interface %}

keepalived-interface:
  test.fail_without_changes:
    - comment: >-
        No interface of this host has its control-plane address {{ node.controlPlane }}, so keepalived has nowhere to put
        {{ pillar.halite.apiServer.vip }}. Give the host that address, or correct `resolved.controlPlane` in its node document.
{%- elif runs_keepalived %}
{%-   from 'halite/addresses.jinja' import control_plane_addresses with context %}

/etc/keepalived/check-apiserver:
  file.managed:
    - source: salt://halite/host/keepalived/check-apiserver.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0755'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

/etc/keepalived/keepalived.conf:
  file.managed:
    - source: salt://halite/host/keepalived/keepalived.conf.j2
    - template: jinja
    - context:
        interface: {{ ns.interface | json }}
        peers: {{ control_plane_addresses | reject('equalto', node.controlPlane) | list | json }}
        # Different on every host, so that the choice never depends on the comparison of addresses;
        # recorded, so that the others' configuration does not change with each host.
        priority: {{ node.vrrpPriority }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: /etc/keepalived/check-apiserver

# The distribution's unit does not restart after a crash, and the address would be lost.
/etc/systemd/system/keepalived.service.d/halite.conf:
  file.managed:
    - source: salt://halite/host/keepalived/restart.conf
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - pkg: host-packages

keepalived:
  service.running:
    - enable: True
    - unmask: True
    - only_drop_ins: [halite.conf]
    # A restart would drop the address; keepalived reads its configuration and keeps it.
    - reload: True
    - watch:
        - file: /etc/keepalived/keepalived.conf
        - file: /etc/systemd/system/keepalived.service.d/halite.conf
{%- else %}

# Disabled, or not a control-plane host: stops keepalived if Halite ever configured it here, which
# releases the address.
keepalived:
  service.dead:
    - enable: False
    - onlyif: test -e /etc/keepalived/check-apiserver

# An operator who starts keepalived later must not take the address with Halite's configuration. Any
# other configuration stays.
/etc/keepalived/keepalived.conf:
  file.absent:
    - onlyif: grep -q '^# Written by Halite' /etc/keepalived/keepalived.conf
    - require:
        - service: keepalived

/etc/systemd/system/keepalived.service.d/halite.conf:
  file.absent:
    - require:
        - service: keepalived

/etc/keepalived/check-apiserver:
  file.absent:
    - require:
        - file: /etc/keepalived/keepalived.conf
{%- endif %}
