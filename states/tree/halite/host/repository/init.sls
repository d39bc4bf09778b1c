{#- The bundle as a package repository. Other repositories of the host stay unchanged. -#}
{%- from 'halite/map.jinja' import is_red_hat, is_bundle_host, site_ca with context %}
{%- from 'halite/servers.jinja' import bundle_servers with context %}

{#- The bundle's repository for the Debian release of this host: `apt` is for Debian 12, which the
    first host has. The bundle has those that its recipe names. -#}
{%- set codename = grains.get('oscodename', '') %}
{%- set apt = 'apt' if codename in ['', 'bookworm'] else 'apt-' ~ codename %}

{#- apt-transport-mirror(1) -#}
{%- macro mirror_list(servers) -%}
{%- for url in servers %}{{ url }}/{{ apt }}{{ '\tpriority:' ~ loop.index ~ '\n' }}{% endfor %}
{%- endmacro %}

include:
  - halite.host.directories

# The CA of the bundle server, for apt and containerd.
{{ site_ca }}:
  file.managed:
    - contents: {{ pillar.halite.pki.site.cert | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
{%- if is_red_hat %}

# The key of the bundle, and those of the distributions whose packages are in it.
/etc/pki/rpm-gpg/RPM-GPG-KEY-halite:
  file.managed:
    - source: bundle://rpm/halite.asc
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

halite-repository:
  pkgrepo.managed:
    - name: halite
    - humanname: Halite bundle
    # The bootstrap host reads the directory itself, because it installs packages before any server
    # runs. Other hosts try the servers in this order, without a proxy.
    - uris:
{%- if is_bundle_host %}
        - file://{{ pillar.halite.bundle.path }}/rpm
{%- else %}
{%- for url in bundle_servers %}
        - {{ url }}/rpm
{%- endfor %}
{%- endif %}
    - signed_by: /etc/pki/rpm-gpg/RPM-GPG-KEY-halite
    - signed_index: True
    - sslcacert: {{ site_ca }}
    - proxy: _none_
    - require:
        - file: {{ site_ca }}
        - file: /etc/pki/rpm-gpg/RPM-GPG-KEY-halite
{%- else %}

/etc/apt/keyrings/halite.gpg:
  file.managed:
    - source: {{ ("bundle://" ~ apt ~ "/halite.gpg") | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

# apt trusts the site CA only for the bundle servers, and connects to them without a proxy.
/etc/apt/apt.conf.d/60halite:
  file.managed:
    - source: salt://halite/host/repository/apt.conf.j2
    - template: jinja
    - user: root
    - group: root
    - mode: '0644'
    - force: True

# Only installations by Halite read it (`prefer_bundle`): they take the bundle's packages, whatever
# versions other sources have. Upgrades by the operator do not downgrade to them.
/etc/apt/halite.preferences:
  file.managed:
    - contents: |
        Package: *
        Pin: release o=Halite
        Pin-Priority: 1001
    - user: root
    - group: root
    - mode: '0644'
    - force: True

{%- set mirrors = '/etc/apt/halite/' ~ pillar.halite.bundle.version ~ '.mirrors' %}
{%- if not is_bundle_host %}

# apt tries these servers in this order, and takes the next one if one does not answer. The file
# name has the version, so that another bundle is another repository, whose lists apt reads again.
{{ mirrors }}:
  file.managed:
    - contents: {{ mirror_list(bundle_servers) | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True

/etc/apt/halite:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
    - clean: True
    - exclude_pat: [{{ pillar.halite.bundle.version }}.mirrors]
    - require:
        - pkgrepo: halite-repository
{%- endif %}

halite-repository:
  pkgrepo.managed:
    - name: halite
    - humanname: Halite bundle
    # The bootstrap host reads the directory itself, because it installs packages before any server
    # runs.
    - uris:
        - {{ ('file:' ~ pillar.halite.bundle.path ~ '/' ~ apt) if is_bundle_host else ('mirror+file:' ~ mirrors) }}
    - suite: stable
    - components: [main]
    - signed_by: /etc/apt/keyrings/halite.gpg
    - require:
        - file: {{ site_ca }}
        - file: /etc/apt/keyrings/halite.gpg
        - file: /etc/apt/apt.conf.d/60halite
{%- if not is_bundle_host %}
        - file: {{ mirrors }}
{%- endif %}
{%- endif %}
