{#- Gives the API servers another key for objects in etcd, and starts the encryption of a cluster that
    was made without it. Each API server can decrypt with a key before any of them encrypts with it,
    and the older key leaves only when no object needs it (Kubernetes' documentation, "Rotate a
    decryption key"). All control planes reach a stage before the next one begins: their own states
    restart the API server, and verify that the one that runs has read the file. Interrupted, it is
    run again, and continues with the same keys. -#}
{%- set ns = namespace(planes=[]) %}
{%- for name, node in pillar.halite.nodes | dictsort if 'control-plane' in node.roles %}
{%-   set ns.planes = ns.planes + [name] %}
{%- endfor %}

# One rotation at a time.
turn:
  halite.lock:
    - lock: encryption-keys

# No host joins or leaves etcd until this run has ended, and no upgrade runs.
members:
  halite.lock:
    - lock: etcd-members
    - require:
        - halite: turn
{%- set last = namespace(id='members') %}
{%- macro keys(stage) %}
keys-{{ stage }}:
  halite.encryption_keys:
    - stage: {{ stage }}
    - nodes: {{ ns.planes | json }}
    - timeout: 60
    - require:
        - halite: {{ last.id }}
{%- set last.id = 'keys-' ~ stage %}
{%- endmacro %}
{%- macro stage(stage) %}
{{- keys(stage) }}
{%- for name in ns.planes %}
{%-   if ns.planes | length > 1 %}

# Only while another one serves: the virtual address moves before the API server stops.
{{ name }}-{{ stage }}-vip:
  halite.vip_moved_off:
    - node: {{ name | json }}
    - timeout: 120
    - require:
        - halite: {{ last.id }}
{%-     set last.id = name ~ '-' ~ stage ~ '-vip' %}
{%-   endif %}

{{ name }}-{{ stage }}:
  halite.state:
    - tgt: {{ name | json }}
    # With the programs that an API server's restart may have ended.
    - sls: [halite.base.control_plane.running]
    - require:
        - halite: {{ last.id }}
{%-   set last.id = name ~ '-' ~ stage %}
{%- endfor %}
{%- endmacro %}

{{ keys('check') }}

# No API server has a later stage than the master, such as one of a master that is gone. Changes
# nothing.
planes-check:
  halite.state:
    - tgt: {{ ns.planes | join(',') }}
    - tgt_type: list
    - sls: [halite.base.control_plane.key_stage]
    - require:
        - halite: {{ last.id }}
{%- set last.id = 'planes-check' %}

# A new key, with which all can decrypt.
{{ stage('next') }}

# All encrypt with it.
{{ stage('write') }}

rewritten:
  halite.encryption_rewrite:
    - require:
        - halite: {{ last.id }}
{%- set last.id = 'rewritten' %}

# Nothing needs the older key.
{{ stage('only') }}

# The next rotation takes a new key.
{{ keys('end') }}
