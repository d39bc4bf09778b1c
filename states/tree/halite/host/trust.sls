{#- Certificates that this host trusts in addition to its distribution's, in the directory where
    that reads them. -#}
{%- from 'halite/map.jinja' import is_red_hat with context %}
{%- set certificates = pillar.halite.trust.certificates %}
{%- if is_red_hat %}
{%-   set place = '/etc/pki/ca-trust/source/anchors/halite.pem' %}
{%-   set files = place %}
{%-   set bundle = '/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem' %}
{%-   set program = 'update-ca-trust' %}
{%-   set update = program %}
{#-     After a removal, the only trace is a directory that is newer than the store. #}
{%-   set leftover = '[ -e ' ~ bundle ~ ' -a /etc/pki/ca-trust/source/anchors -nt ' ~ bundle ~ ' ]' %}
{%- else %}
{%-   set place = '/usr/local/share/ca-certificates/halite' %}
{%-   set files = place ~ '/*.crt' %}
{%-   set bundle = '/etc/ssl/certs/ca-certificates.crt' %}
{%-   set program = 'update-ca-certificates' %}
{#-   update-ca-certificates keeps the links and hashes of certificates that were removed or
      replaced. #}
{%-   set update = program ~ ' && find /etc/ssl/certs -xtype l -delete && openssl rehash /etc/ssl/certs' %}
{%-   set leftover = "find /etc/ssl/certs -name 'halite-*.pem' -xtype l | grep -q ." %}
{%- endif %}
{%- if not certificates %}

{{ place }}:
  file.absent: []
{%- elif is_red_hat %}

# One file, because update-ca-trust reads no subdirectories.
{{ place }}:
  file.managed:
    - contents: {{ certificates.values() | join | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
{%- else %}
{%- set ns = namespace(names=[]) %}
{%- for name in certificates | sort %}
{%-   set ns.names = ns.names + ['halite-' ~ name ~ '.crt'] %}
{%- endfor %}

{{ place }}:
  file.directory:
    - user: root
    - group: root
    - mode: '0755'
    - makedirs: True
    - clean: True
    - exclude_pat: {{ ns.names | json }}
{%- for name, certificate in certificates | dictsort %}

{{ place }}/halite-{{ name }}.crt:
  file.managed:
    - contents: {{ certificate | json }}
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - require:
        - file: {{ place }}
    - onchanges_in:
        - cmd: trust-store
{%- endfor %}
{%- endif %}

trust-store:
  cmd.run:
    - name: >-
        command -v {{ program }} >/dev/null ||
        { echo 'this host has no {{ program }}: install its package ca-certificates' >&2; exit 1; };
        {{ update }}
    - onchanges:
        - file: {{ place }}

# A run that was interrupted between the change and `trust-store` left the store outdated; this
# state compares its content.
trust-store-whole:
  cmd.run:
    - name: {{ update | json }}
    - unless: >-
        files=$(ls {{ files }} 2>/dev/null);
        ! {{ leftover }} && { [ -z "$files" ] || awk '
        /^-----BEGIN/ { text = "" }
        { text = text $0 }
        /^-----END/ { if (FILENAME == ARGV[1]) have[text] = 1; else if (!(text in have)) lacks = 1 }
        END { exit lacks }' {{ bundle }} $files; }
    - require:
        - cmd: trust-store
