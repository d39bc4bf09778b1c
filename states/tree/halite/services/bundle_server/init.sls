{#- nginx as the server of the site's bundles: packages, programs and, as an OCI registry, images.
    Static files, read only, TLS. The master's host has the bundles; a further host with the role
    `registry` copies them from the other servers. -#}
{%- from 'halite/services/bundle_server/map.jinja' import bundles, in_use, locations with context %}
{%- from 'halite/map.jinja' import node, site_ca, is_bundle_host, other_bundle_servers, bundles_directory with context %}
include:
  - halite.host.repository
  - halite.host.packages
{%- if not is_bundle_host %}
  - halite.services.ctl
{%- endif %}

/etc/halite/pki/server.crt:
  x509.certificate:
    - ca: site
    - ca_certificate: {{ pillar.halite.pki.site.cert | json }}
    - algorithm: ecdsa-p256
    - common_name: {{ node.name }}
    - sans_dns: [{{ node.name }}, localhost]
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
{%- if not is_bundle_host %}
{%- set ns = namespace(kept=[]) %}
{%- for bundle in bundles %}
{%-   set ns.kept = ns.kept + [bundle.version, '.' ~ bundle.version ~ '.*'] %}
{%- endfor %}

# Removes bundles that the site no longer has, before new ones are copied, to free their space.
# Unfinished copies stay, and the lock of `ctl bundle`.
{{ bundles_directory }}:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
    - makedirs: True
    - clean: True
    - exclude_pat: {{ (ns.kept + ['lost+found', '.lock']) | json }}

# Each file is verified against the manifest, and the manifest against the digest in the pillar, so
# the server need not be trusted. A copy becomes visible only when complete, and files that are
# there already are not fetched again.
{%- for bundle in bundles %}
{%-   set command = '/usr/local/bin/ctl bundle copy --to ' ~ bundle.path ~ ' --manifest-sha256 ' ~ bundle.manifest %}

bundle-{{ bundle.version }}:
  cmd.run:
    - name: >-
        {{ command }} --ca {{ site_ca }}
{%-   for url in other_bundle_servers %} --from {{ url.split('/bundles/') | first }}/bundles/{{ bundle.version }}{% endfor %}
    - unless: test -x /usr/local/bin/ctl && {{ command }} --check
    - require:
        - file: /usr/local/bin/ctl
        - file: {{ site_ca }}
        - file: {{ bundles_directory }}
{%- if bundle.version == in_use.version %}
    - require_in:
        - file: /etc/nginx/conf.d/halite.conf
{%- endif %}
{%- endfor %}
{%- endif %}

# nginx starts as root, and its configuration can make it write any file. So it reads no configuration
# from a bundle, which may be a linked directory or a medium: only this copy, of the digest that the
# bundle's manifest has.
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

# nginx reads its configuration again if it does not serve a bundle: the ISO of that bundle was not
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
