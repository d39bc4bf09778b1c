{#- nginx as the server of the site's bundles: packages, programs and, as an OCI registry, images.
    Static files, read only, TLS. The master's host has the bundles; an additional host with the
    role `registry` copies them from the other servers. -#}
{%- from 'halite/services/bundle_server/map.jinja' import bundles, in_use, locations with context %}
{%- from 'halite/map.jinja' import node, site_ca, is_bundle_host with context %}
include:
  - halite.host.repository
  - halite.host.packages
{%- if not is_bundle_host %}
  - halite.services.bundle_server.copies
{%- endif %}

/etc/halite/pki/server.crt:
  x509.certificate:
    - ca: site
    - ca_certificate: {{ pillar.halite.pki.site.cert | json }}
    - algorithm: ecdsa-p256
    - common_name: {{ node.name | json }}
    - sans_dns: [{{ node.name | json }}, localhost]
    - sans_ip: {{ ([node.controlPlane, '127.0.0.1']) | unique | sort | json }}
    - server_auth: True
    - require:
        - file: {{ site_ca }}

# The script that a new host runs to enrol; contains no secret.
/srv/halite/enrol.sh:
  file.managed:
    - source: salt://halite/services/bundle_server/enrol.sh.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0755'
    - force: True
    - makedirs: True

# nginx starts as root, and its configuration can make it write any file. So it reads no
# configuration from a bundle, which may be a linked directory or a mounted ISO: only this copy,
# with the digest from the bundle's manifest.
{{ locations }}:
  file.managed:
    - source: bundle://nginx/registry.conf
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

/etc/nginx/conf.d/halite.conf:
  file.managed:
    - source: salt://halite/services/bundle_server/nginx.conf.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - pkg: host-packages
        - file: {{ locations }}
{%- if not is_bundle_host %}
        - cmd: bundle-{{ in_use.version }}
{%- endif %}

# Debian's example site would listen on port 80.
/etc/nginx/sites-enabled/default:
  file.absent:
    - require:
        - pkg: host-packages

nginx:
  service.running:
    - enable: True
    - unmask: True
    - reload: True
    - watch:
        - file: /etc/nginx/conf.d/halite.conf
        - file: {{ locations }}
        - file: /etc/nginx/sites-enabled/default
        - x509: /etc/halite/pki/server.crt
{%- if not is_bundle_host %}
        # Only the bundle in use: a failed copy of another bundle must not stop nginx.
        - cmd: bundle-{{ in_use.version }}
{%- endif %}

# nginx reloads its configuration if it does not serve a bundle: the ISO of that bundle was not
# mounted when nginx started, or a run was interrupted between a change and the reload.
nginx-knows-every-bundle:
  cmd.run:
    - name: systemctl reload nginx.service
    - unless:
{%- for bundle in bundles %}
        - fun: http.query
          url: https://{{ node.controlPlane }}:4551/bundles/{{ bundle.version }}/v2/_catalog
          ca: {{ site_ca }}
{%- endfor %}
    - require:
        - service: nginx

bundle-server-answers:
  http.wait_for_successful_query:
    - name: https://{{ node.controlPlane }}:4551/bundles/{{ pillar.halite.bundle.version }}/manifest.json
    - ca: {{ site_ca }}
    - wait_for: 30
    - require:
        - cmd: nginx-knows-every-bundle
        - file: /srv/halite/enrol.sh
