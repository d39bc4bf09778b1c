{#- A host that serves no bundles, perhaps no longer. nginx itself may be somebody else's, so it is left. -#}

/etc/nginx/conf.d/halite.conf:
  file.absent: []

nginx-forgets-bundles:
  cmd.run:
    - name: systemctl reload nginx.service
    - onlyif: systemctl --quiet is-active nginx.service
    - onchanges:
        - file: /etc/nginx/conf.d/halite.conf

{%- for path in ['/var/lib/halite/bundles', '/srv/halite/enrol.sh', '/etc/halite/pki/server.crt', '/etc/halite/pki/server.key'] %}

{{ path }}:
  file.absent:
    - require:
        - file: /etc/nginx/conf.d/halite.conf
{%- endfor %}
