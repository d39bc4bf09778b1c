{#- nginx serves the bundle: packages, programs and, as an OCI registry, images. Static files, read only, TLS. -#}
{%- from 'map.jinja' import node, site_ca with context %}
include:
  - host.repository
  - host.packages

/etc/halite/pki/server.crt:
  x509.certificate:
    - ca: site
    - ca_certificate: {{ pillar.pki.site.cert | json }}
    - algorithm: ecdsa-p256
    - common_name: {{ node.name }}
    - sans_dns: [{{ node.name }}, localhost]
    - sans_ip: {{ ([pillar.bundle.host, '127.0.0.1']) | unique | sort | json }}
    - server_auth: True
    - require:
        - file: {{ site_ca }}

# What a new host runs to be enrolled; it holds no secret.
/srv/halite/enrol.sh:
  file.managed:
    - source: salt://halite/bundle_server/enrol.sh.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0755'
    - makedirs: True

/etc/nginx/conf.d/halite.conf:
  file.managed:
    - source: salt://halite/bundle_server/nginx.conf.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - require:
        - pkg: host-packages

# Debian's example site would listen on port 80.
/etc/nginx/sites-enabled/default:
  file.absent:
    - require:
        - pkg: host-packages

nginx:
  service.running:
    - enable: True
    - reload: True
    - watch:
        - file: /etc/nginx/conf.d/halite.conf
        - file: /etc/nginx/sites-enabled/default
        - x509: /etc/halite/pki/server.crt

bundle-server-answers:
  http.wait_for_successful_query:
    - name: {{ pillar.bundle.url }}/enrol.sh
    - ca: {{ site_ca }}
    - wait_for: 30
    - require:
        - service: nginx
        - file: /srv/halite/enrol.sh
