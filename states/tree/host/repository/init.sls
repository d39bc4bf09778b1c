{#- Packages come from the bundle. Other sources of the host are left alone. -#}
{%- from 'map.jinja' import is_bundle_host, site_ca with context %}

# The CA of the bundle server, for apt and containerd.
{{ site_ca }}:
  file.managed:
    - contents: {{ pillar.pki.site.cert | json }}
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True

/etc/apt/keyrings/halite.gpg:
  file.managed:
    - source: bundle://apt/halite.gpg
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True

# Our CA is trusted for our host, and for nothing else; no proxy stands between.
/etc/apt/apt.conf.d/60halite:
  file.managed:
    - source: salt://host/repository/apt.conf.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'

halite-repository:
  pkgrepo.managed:
    - name: halite
    - humanname: Halite bundle
    # The bundle host reads the directory itself: packages install before any server runs.
    - uris:
        - {{ ('file:' ~ pillar.bundle.path ~ '/apt') if is_bundle_host else (pillar.bundle.url ~ '/apt') }}
    - suite: stable
    - components: [main]
    - signed_by: /etc/apt/keyrings/halite.gpg
    - require:
        - file: {{ site_ca }}
        - file: /etc/apt/keyrings/halite.gpg
        - file: /etc/apt/apt.conf.d/60halite
