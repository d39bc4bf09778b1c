{#- only: highstate, orchestration -#}
{#- A host that no longer serves bundles. It may still have them. nginx itself stays, because the
    operator may use it. -#}

/etc/nginx/conf.d/halite.conf:
  file.absent: []

nginx-forgets-bundles:
  cmd.run:
    - name: systemctl reload nginx.service
    - onlyif: systemctl --quiet is-active nginx.service
    - onchanges:
        - file: /etc/nginx/conf.d/halite.conf

{%- for path in ['/srv/halite/enrol.sh', '/etc/halite/nginx', '/etc/halite/pki/server.crt', '/etc/halite/pki/server.key'] %}

{{ path }}:
  file.absent:
    - require:
        - file: /etc/nginx/conf.d/halite.conf
{%- endfor %}
