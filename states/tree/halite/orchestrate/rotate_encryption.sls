{#- Gives the API servers another key for objects in etcd, and starts the encryption of a cluster that
    was made without it. Each API server can decrypt with a key before any of them encrypts with it,
    and the older key leaves only when no object needs it (Kubernetes' documentation, "Rotate a
    decryption key"). Interrupted, it is run again, and continues with the same key. The step
    `halite.encryption_keys` refuses a cluster with several control planes: another one could join,
    or get states that were compiled earlier, and could not decrypt what the others write. -#}
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
{%- macro stage(stage) %}
keys-{{ stage }}:
  halite.encryption_keys:
    - stage: {{ stage }}
    - require:
        - halite: {{ last.id }}
{%- set last.id = 'keys-' ~ stage %}
{%- for name in ns.planes %}

{{ name }}-{{ stage }}:
  halite.state:
    - tgt: {{ name }}
    # With the programs that an API server's restart may have ended.
    - sls: [halite.base.control_plane.running]
    - require:
        - halite: {{ last.id }}
{%-   set last.id = name ~ '-' ~ stage %}
{%- endfor %}
{%- endmacro %}

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
