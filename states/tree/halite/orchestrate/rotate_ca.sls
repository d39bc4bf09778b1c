{#- Replaces a CA, or the key pair that signs tokens of service accounts (`ctl certs rotate`).
    `pillar.ca` is `kubernetes`, `etcd`, `front-proxy`, `halite`, `site` or `sa`. In each stage, all hosts that have the
    CA get it: both are trusted, then the new one signs and all certificates are made again, then the
    old one leaves (Kubernetes' documentation, "Manual Rotation of CA Certificates"; stages:
    docs/decisions/0102). With `pillar.compromised` the old one leaves at once. With
    `pillar.restart_pods` the workloads of pods that still have the old one are restarted.

    The master records the stage, and a stage is never taken back: interrupted, it is run again, and
    continues with the same CA. -#}
{%- set ca = pillar.ca %}
{%- set running = 'halite.base.control_plane.running' %}
{#- For each CA: the states with it on a host with etcd only, on a control plane, and on another
    node; the objects with it; and the stage after which no pod may depend on the old one. -#}
{%- set all = {
  'kubernetes': {'planes': [running, 'halite.base.kubelet'], 'nodes': ['halite.base.kubelet', 'halite.host.local_proxy'],
                 'objects': ['halite.base.kubeadm_objects'], 'pods': 'trust'},
  'etcd': {'members': ['halite.base.etcd'], 'planes': [running]},
  'front-proxy': {'planes': [running]},
  'sa': {'planes': [running], 'pods': 'sign'},
  'halite': {'own': True},
  'site': {'own': True},
} %}
{%- if ca not in all %}
{{- raise('the CAs that can be rotated are kubernetes, etcd, front-proxy, halite and site, and sa stands for service accounts') }}
{%- endif %}
{%- set has = all[ca] %}
{%- set ns = namespace(last='turn', etcd=[], members=[], planes=[]) %}
{%- for name, node in pillar.halite.nodes | dictsort %}
{%-   if 'etcd' in node.roles and has.members is defined %}{% set ns.etcd = ns.etcd + [name] %}{% endif %}
{%-   if 'control-plane' in node.roles %}{% set ns.planes = ns.planes + [name] %}
{%-   elif 'etcd' in node.roles and has.members is defined %}{% set ns.members = ns.members + [name] %}
{%-   endif %}
{%- endfor %}

# No host joins or leaves etcd until this run has ended, and no upgrade and no other rotation runs.
turn:
  halite.lock:
    - lock: etcd-members
{%- macro host(name, stage) %}
{%-   set node = pillar.halite.nodes[name] %}
{%-   set is_member = 'etcd' in node.roles %}
{%-   set is_plane = 'control-plane' in node.roles %}
{%-   if is_member %}

{{ name }}-{{ stage }}-may-restart:
  halite.etcd_quorum_allows:
    - node: {{ name | json }}
    - require:
        - halite: {{ ns.last }}
{%-     set ns.last = name ~ '-' ~ stage ~ '-may-restart' %}
{%-   endif %}
{%-   if is_plane %}

{{ name }}-{{ stage }}-vip:
  halite.vip_moved_off:
    - node: {{ name | json }}
    - timeout: 120
    - require:
        - halite: {{ ns.last }}
{%-     set ns.last = name ~ '-' ~ stage ~ '-vip' %}
{%-   endif %}

{{ name }}-{{ stage }}:
  halite.state:
    - tgt: {{ name | json }}
    - sls: {{ ((has.get('members', []) if is_member else []) + (has.planes if is_plane else [])) | json }}
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = name ~ '-' ~ stage %}
{%- endmacro %}
{#- The states of a CA of Halite's own on some hosts. A bare host gets it in its own run. -#}
{%- macro apply(id, stage, tgt, sls) %}

{{ id }}-{{ stage }}:
  halite.state:
    - tgt: '{{ tgt }}'
    - tgt_type: compound
    - sls: {{ sls | json }}
    - unmatched: skip
    - bare: skip
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = id ~ '-' ~ stage %}
{%- endmacro %}
{%- macro identities(of, stage, timeout) %}

{{ of }}-{{ stage }}:
  halite.ca_identities:
    - stage: {{ stage }}
    - of: {{ of }}
    - timeout: {{ timeout }}
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = of ~ '-' ~ stage %}
{%- endmacro %}
{%- macro own(stage) %}
{%-   set servers = 'I@halite:node:runs:master:True or I@halite:node:roles:registry' %}
{%-   if ca == 'site' %}
{#-     The CA in the file of each host, then the certificates of the servers. #}
{{- apply('hosts', stage, '* and not L@master', ['halite.host.repository']) }}
{{- apply('servers', stage, servers, ['halite.services.bundle_server']) }}
{{- apply('registry', stage, '* and not L@master', ['halite.services.site_registry']) }}
{{- apply('metrics', stage, 'I@halite:node:runs:master:True or I@halite:node:runs:standby:True', ['halite.services.master.metrics']) }}
{%-   elif pillar.get('compromised') and stage == 'trust' %}
{#-     Hosts that are off lose access, and enrol again. #}
{{- identities('connected', stage, 60) }}
{%-   else %}
{#-     Minions get the CAs over their links; root on each control plane and new hosts by files. A host
        that has lost access enrols again by those files, so they come first. #}
{%-     set is_compromised = pillar.get('compromised') %}
{{- identities('connected' if is_compromised else 'hosts', stage, 60 if is_compromised else 7200) }}
{{- apply('servers', stage, servers, ['halite.services.bundle_server']) }}
{{- apply('planes', stage, 'I@halite:node:roles:control-plane', ['halite.services.operator']) }}
{%-     if is_compromised %}
{{- identities('hosts', stage, 7200) }}
{%-     endif %}
{%-     if stage == 'sign' %}
{{- identities('operators', stage, 7200) }}
{%-     endif %}
{%-   endif %}
{%- endmacro %}
{%- macro stage(stage) %}

stage-{{ stage }}:
  halite.ca_stage:
    - ca: {{ ca }}
    - stage: {{ stage }}
    - nodes: {{ (ns.planes + ns.members) | json }}
    - compromised: {{ pillar.get('compromised', False) }}
    - timeout: 60
    - require:
        - halite: {{ ns.last }}
{%-   set ns.last = 'stage-' ~ stage %}
{%-   if has.own is defined %}
{{- own(stage) }}
{%-   elif pillar.get('compromised') %}
{%-     for kind, names in [('members', ns.etcd), ('planes', ns.planes)] if names %}

# Together: with different CAs they do not reach each other, in whatever order they get them.
{{ kind }}-{{ stage }}:
  halite.state:
    - tgt: {{ names | join(',') }}
    - tgt_type: list
    - sls: {{ has[kind] | json }}
    - require:
        - halite: {{ ns.last }}
{%-       set ns.last = kind ~ '-' ~ stage %}
{%-     endfor %}
{%-   else %}
{%-     for name in ns.members + ns.planes %}
{{- host(name, stage) }}
{%-     endfor %}
{%-   endif %}
{%-   if has.nodes is defined %}

# Also a node that has joined since this run began. One that is still bare gets the CA in its own run.
nodes-{{ stage }}:
  halite.state:
    - tgt: '* and not L@master and I@halite:node:runs:containers:True and not I@halite:node:roles:control-plane'
    - tgt_type: compound
    - sls: {{ has.nodes | json }}
    - batch: {{ pillar.halite.upgrade.batch | string | json }}
    - unmatched: skip
    - bare: skip
    - require:
        - halite: {{ ns.last }}
{%-     set ns.last = 'nodes-' ~ stage %}
{%-   endif %}
{%-   if has.objects is defined %}

objects-{{ stage }}:
  halite.state:
    - tgt: master
    - sls: {{ has.objects | json }}
    - require:
        - halite: {{ ns.last }}
{%-     set ns.last = 'objects-' ~ stage %}
{%-   endif %}
{%-   if has.pods is defined and (stage == has.pods or pillar.get('compromised')) %}

# A pod reads its CA when it starts, and its token is renewed by the kubelet.
pods:
  halite.ca_pods:
    - ca: {{ ca }}
    - stage: {{ stage }}
    - restart: {{ pillar.get('restart_pods', False) }}
    - timeout: 7200
    - require:
        - halite: {{ ns.last }}
{%-     set ns.last = 'pods' %}
{%-   endif %}
{%- endmacro %}
{#- A compromised CA leaves at once; before that, connected minions get the next CA of identities. -#}
{%- set at_once = ['trust', 'only'] if ca == 'halite' else ['only'] %}
{%- for name in (at_once if pillar.get('compromised') else ['trust', 'sign', 'only']) %}
{{- stage(name) }}
{%- endfor %}

end:
  halite.ca_stage:
    - ca: {{ ca }}
    - stage: end
    - nodes: {{ (ns.planes + ns.members) | json }}
    - compromised: {{ pillar.get('compromised', False) }}
    - timeout: 60
    - require:
        - halite: {{ ns.last }}
