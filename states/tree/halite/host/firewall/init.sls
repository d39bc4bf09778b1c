{#- The firewall opens only the ports of the host's roles. A policy before all zones opens each port
    to its sources, and leaves all other traffic to the operator's zones, SSH included. Pods are in
    their own zone, which is never trusted. -#}
{%- from 'halite/host/firewall/map.jinja' import host_rules, pod_rules, node_sets with context %}
{%- from 'halite/map.jinja' import is_kubernetes_node with context %}
include:
  - halite.host.packages
{%- if pillar.halite.host.manageFirewall %}

firewalld:
  service.running:
    - enable: True
    - unmask: True
    - require:
        - pkg: host-packages
{%- if is_kubernetes_node %}

# The zone comes first: firewalld accepts no change while a policy names a zone that does not exist.
#
# Pods reach each other through the host; on the host itself they reach only what `halite-host`
# opens to them. Traffic that a Service forwards to this host has a rewritten destination, and
# firewalld's own rule for such connections accepts it.
halite-pods:
  firewalld.zone:
    - description: Pods
    - target: default
    - sources: [{{ pillar.halite.networks.pods }}]
{%- if pillar.halite.cni.plugin == 'flannel' %}
    - interfaces: [cni0, flannel.1]
{%- endif %}
    - forward: True
    - require:
        - service: firewalld
{%- endif %}
{%- if node_sets %}

# Addresses of the cluster's hosts. A rule may name a set only when the set exists.
halite-sets:
  firewalld.ipsets:
    - sets: {{ node_sets | json }}
    - require:
        - service: firewalld
{%-   if is_kubernetes_node %}
        - firewalld: halite-pods
{%-   endif %}
{%- endif %}

halite-host:
  firewalld.policy:
    - description: Ports of this host's roles, each open to its sources
    - ingress_zones: [ANY]
    - egress_zones: [HOST]
    - target: CONTINUE
    - priority: -100
    - rich_rules:
{%- for rule in host_rules %}
        - {{ rule }}
{%- endfor %}
    - require:
        - service: firewalld
{%- if node_sets %}
        - firewalld: halite-sets
{%- endif %}
{%- if is_kubernetes_node %}

halite-pods-out:
  firewalld.policy:
    - description: Pods may open connections to anywhere but hosts of the cluster
    - ingress_zones: [halite-pods]
    - egress_zones: [ANY]
    - target: ACCEPT
    - priority: -50
{%- if pod_rules %}
    - rich_rules:
{%-   for rule in pod_rules %}
        - {{ rule }}
{%-   endfor %}
{%- endif %}
    - require:
        - firewalld: halite-pods
{%- if node_sets %}
        - firewalld: halite-sets
{%- endif %}
{%- endif %}

# Removes the zones, policies and sets of an earlier version or role. Those without the prefix `halite-`
# stay.
halite-firewall-owned:
  firewalld.owned:
    - zones: {{ (['halite-pods'] if is_kubernetes_node else []) | json }}
    - policies: {{ (['halite-host'] + (['halite-pods-out'] if is_kubernetes_node else [])) | json }}
    - ipsets: {{ node_sets | list | json }}
    - require:
        - firewalld: halite-host
{%- if is_kubernetes_node %}
        - firewalld: halite-pods-out
{%- endif %}
{%- endif %}
