{#- A host that does not serve bundles, or no longer. nginx itself stays, because the operator may
    use it, and on a standby of the master the bundles. -#}
{%- from 'halite/map.jinja' import is_standby, bundles_directory with context %}

/etc/nginx/conf.d/halite.conf:
  file.absent: []

nginx-forgets-bundles:
  cmd.run:
    - name: systemctl reload nginx.service
    - onlyif: systemctl --quiet is-active nginx.service
    - onchanges:
        - file: /etc/nginx/conf.d/halite.conf

{%- for path in ([] if is_standby else [bundles_directory]) + ['/srv/halite/enrol.sh', '/etc/halite/nginx', '/etc/halite/pki/server.crt', '/etc/halite/pki/server.key'] %}

{{ path }}:
  file.absent:
    - require:
        - file: /etc/nginx/conf.d/halite.conf
{%- endfor %}
