{#- The certificate with which the master serves its metrics to Prometheus: on the master's host, and
    on its standbys, which serve them once they are promoted. The master reads the files again after
    a change. These states are separate from the master's others, which run before any CA exists. -#}
{%- from 'halite/map.jinja' import node, site_ca, has_master, is_standby with context %}
{#- Older masters do not set this key. -#}
{%- set metrics = pillar.halite.master.get('metrics') %}
{%- if not (metrics and (has_master or is_standby)) %}
include:
  - halite.services.master.no_metrics
{%- else %}
include:
  - halite.host.repository

/etc/halite/pki/metrics.crt:
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

# The authorities of clients' certificates.
/etc/halite/pki/metrics-clients.pem:
{%-   if metrics.clientCA %}
  file.managed:
    - contents: {{ metrics.clientCA | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: {{ site_ca }}
{%-   else %}
  file.absent: []
{%-   endif %}
{%- endif %}
