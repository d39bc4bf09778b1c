{#- Refuses states with an earlier stage of a CA's rotation than this host has (decision 0102): those of a
    master that had not followed the rotation, or of a restored one. The host would lose a CA that others
    already use, or trust one again that has left. -#}
{%- from 'halite/map.jinja' import node, roles with context %}
{%- set file = '/etc/kubernetes/pki/rotations' %}
{#- Older masters do not set these numbers. -#}
{%- set stages = pillar.halite.pki.get('stages', {}) %}
{%- set has = namespace(known=[], lines=[]) %}
{%- for ca, number in stages | dictsort %}
{%-   set has.known = has.known + [ca ~ ') known=' ~ number ~ ';;'] %}
{%-   set is_used = ca == 'kubernetes' or 'control-plane' in roles or (ca == 'etcd' and 'etcd' in roles) %}
{%-   if number > 0 and is_used %}{% set has.lines = has.lines + [ca ~ ' ' ~ number] %}{% endif %}
{%- endfor %}
{%- set later = 'while read -r ca number; do case $ca in ' ~ has.known | join(' ') ~ ' *) continue;; esac; '
    ~ 'test "${number:-0}" -gt "$known" && exit 0; done 2>/dev/null <' ~ file ~ '; exit 1' %}
{%- if stages %}

# Before anything on the host is changed.
ca-stage-not-later:
  test.fail_without_changes:
    - comment: >-
        cannot apply the states of {{ node.name }}: the host has a later stage of the rotation of a CA than these states, and would no
        longer trust what other hosts use. If these states were compiled before a stage of a rotation, run the same command
        again. If the master has earlier CAs, put back /var/lib/halite/master/ca, sa.key and sa.pub from the previous master,
        another standby, or a backup that is newer than the rotation, restart halite-master, then run the same command again.
        To return all hosts to the earlier CAs on purpose, remove {{ file }} on each host; it has the CAs and their stages.
    - onlyif: {{ later | json }}
    - order: first
    - failhard: True
{%- endif %}
{%- if has.lines %}

# Before the CAs, so that a host that has one of them is never without its stage.
{{ file }}:
  file.managed:
    - contents: {{ (has.lines | join('\n') ~ '\n') | json }}
    - user: root
    - group: root
    - mode: '0644'
    - makedirs: True
    - failhard: True
    - require:
        - test: ca-stage-not-later
{%- endif %}
