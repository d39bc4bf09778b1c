{#- The site registry: a writable registry (distribution) for the site's own images, on one host,
    with a daily backup. Images of bundles are served by the bundle servers, read only. -#}
{%- from 'halite/map.jinja' import node, site_ca with context %}
{%- from 'halite/cluster.jinja' import has_site_registry with context %}
{%- set registry = pillar.halite.siteRegistry %}
{%- if not has_site_registry %}
include:
  - halite.services.site_registry.absent
{%- else %}
{%- set certificate = '/etc/halite/registry/server.crt' %}
{%- set is_verified = registry.backup.verify != 'never' %}
{%- set scheduled = ['halite-registry-backup.service', 'halite-registry-backup.timer'] +
                    (['halite-registry-verify.service', 'halite-registry-verify.timer'] if is_verified else []) %}
include:
  - halite.host.repository
  - halite.host.packages
  - halite.services.ctl
  - halite.services.reports

halite-registry-group:
  group.present:
    - name: halite-registry
    - system: True

halite-registry-user:
  user.present:
    - name: halite-registry
    - gid: halite-registry
    - fullname: The site's registry
    - home: {{ registry.data }}
    - shell: /usr/sbin/nologin
    - system: True
    - createhome: False
    - require:
        - group: halite-registry-group

{{ registry.data }}:
  file.directory:
    - user: halite-registry
    - group: halite-registry
    - mode: '0750'
    - require:
        - user: halite-registry-user
        - file: /var/lib/halite

/etc/halite/registry:
  file.directory:
    - user: root
    - group: halite-registry
    - mode: '0750'
    - require:
        - user: halite-registry-user
        - file: /etc/halite

{{ certificate }}:
  x509.certificate:
    - ca: site
    - ca_certificate: {{ pillar.halite.pki.site.cert | json }}
    - algorithm: ecdsa-p256
    - common_name: {{ registry.name | json }}
    - sans_dns: {{ ([registry.name, node.name, 'localhost']) | json }}
    - sans_ip: {{ ([registry.address, '127.0.0.1']) | unique | sort | json }}
    - server_auth: True
    - user: halite-registry
    - group: halite-registry
    - require:
        - file: {{ site_ca }}
        - file: /etc/halite/registry

# The registry reads it again after a change.
/etc/halite/registry/htpasswd:
  file.managed:
    - contents: {{ registry.htpasswd | json }}
    - user: root
    - group: halite-registry
    - mode: '0640'
    - force: True
    - require:
        - file: /etc/halite/registry

/etc/halite/registry/config.yml:
  file.managed:
    - source: salt://halite/services/site_registry/config.yml.j2
    - template: jinja
    - user: root
    - group: halite-registry
    - mode: '0640'
    - force: True
    - require:
        - file: /etc/halite/registry

# Key that signs upload state. Without it the registry makes a new one at each start, and uploads in
# progress fail. Generated on this host; no other host needs it.
site-registry-uploads:
  cmd.run:
    - name: cd /etc/halite/registry && umask 077 && key=$(od -An -tx1 -N32 /dev/urandom | tr -d ' \n') && test -n "$key" && printf 'REGISTRY_HTTP_SECRET=%s\n' "$key" > uploads.new && sync uploads.new && mv uploads.new uploads.env
    - creates: /etc/halite/registry/uploads.env
    - require:
        - file: /etc/halite/registry
{%- for unit in ['halite-registry.service', 'halite-failed@.service'] + scheduled %}

/etc/systemd/system/{{ unit }}:
  file.managed:
    - source: salt://halite/services/site_registry/{{ unit }}.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True
{%- endfor %}

halite-registry:
  service.running:
    - enable: True
    - unmask: True
    - only_drop_ins: []
    - require:
        - pkg: host-packages
        - file: {{ registry.data }}
        - file: /etc/halite/registry/htpasswd
        - cmd: site-registry-uploads
    - watch:
        - file: /etc/systemd/system/halite-registry.service
        - file: /etc/halite/registry/config.yml
        - x509: {{ certificate }}

# 401: the registry answers, and requests a user name.
site-registry-answers:
  http.wait_for_successful_query:
    - name: https://{{ registry.address }}:{{ registry.port }}/v2/
    - status: 401
    - ca: {{ site_ca }}
    - wait_for: 30
    - require:
        - service: halite-registry

/var/lib/halite/reports/registry-backup.since:
  file.managed:
    - contents: There should be backups since this file was made.
    - user: root
    - group: root
    - mode: '0600'
    - force: True
    - require:
        - file: /var/lib/halite/reports

# Timers start these units, so systemd must reload them after a change.
site-registry-backup-read:
  cmd.run:
    - name: systemctl daemon-reload
    - onchanges:
        - file: /etc/systemd/system/halite-failed@.service
{%- for unit in scheduled if unit.endswith('.service') %}
        - file: /etc/systemd/system/{{ unit }}
{%- endfor %}
{%- for unit in scheduled if unit.endswith('.timer') %}

{{ unit }}:
  service.running:
    - enable: True
    - unmask: True
    - require:
        - file: /usr/local/bin/ctl
        - file: /var/lib/halite/reports/registry-backup.since
        - cmd: site-registry-backup-read
    - watch:
        - file: /etc/systemd/system/{{ unit }}
{%- endfor %}
{%- if not is_verified %}

halite-registry-verify.timer:
  service.dead:
    - enable: False
{#-   The reports would grow old, and an alert would say so forever. #}
{%-   for path in ['/etc/systemd/system/halite-registry-verify.timer', '/etc/systemd/system/halite-registry-verify.service',
                   '/var/lib/halite/reports/registry-verify.json', '/var/lib/halite/reports/registry-verify.failed'] %}

{{ path }}:
  file.absent:
    - require:
        - service: halite-registry-verify.timer
{%-   endfor %}
{%- endif %}
{%- endif %}
