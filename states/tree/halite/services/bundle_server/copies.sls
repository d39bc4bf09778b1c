{#- Copies of the site's bundles, on hosts that serve them without being the master's host, and on
    its standbys, which need them once they are promoted. -#}
{%- from 'halite/services/bundle_server/map.jinja' import bundles with context %}
{%- from 'halite/map.jinja' import site_ca, bundles_directory with context %}
{%- from 'halite/servers.jinja' import other_bundle_servers with context %}
include:
  - halite.host.repository
  - halite.services.ctl
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
# the server need not be trusted. A copy becomes visible only when complete, and existing files are
# not fetched again.
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
{%- endfor %}
