{#- Ends a member of etcd that has left its cluster, on a host that stays. Only for orchestrations, after etcd has
    removed the member. The way of an API server to the other members stays. -#}
{%- from 'halite/base/etcd/map.jinja' import is_own_unit, manifest, pki, programs, record, unit with context %}
{{ manifest }}:
  file.absent: []

former-member-ended:
  cmd.run:
    - name: systemctl disable --now etcd.service; rm -rf {{ programs }}; rmdir --ignore-fail-on-non-empty /usr/local/lib/halite; rm -f {{ unit }}; systemctl daemon-reload
    - onlyif: {{ is_own_unit }}
    - require:
        - file: {{ manifest }}

# A member of this host may join again one day: these data must not be taken for its.
former-member-data:
  cmd.run:
    - name: mv -T /var/lib/etcd/member "/var/lib/etcd/member.removed-$(date +%s)"
    - onlyif: test -e /var/lib/etcd/member
    - require:
        - cmd: former-member-ended
{%- for file in [record] + ['ca.key', 'server.crt', 'server.key', 'peer.crt', 'peer.key', 'healthcheck-client.crt', 'healthcheck-client.key'] %}

{{ file if file == record else pki ~ file }}:
  file.absent:
    - require:
        - cmd: former-member-data
{%- endfor %}
