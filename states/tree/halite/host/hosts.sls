{#- Host names without DNS. The API server has its own name, so that its address can change without
    new certificates. -#}
{%- from 'halite/map.jinja' import is_kubernetes_node with context %}
{%- from 'halite/cluster.jinja' import has_local_proxy with context %}
{%- if has_local_proxy %}
include:
  - halite.host.local_proxy
{%- endif %}
{%- set own = pillar.halite.get('node', {}).get('name', grains.id) %}
{#- A host that has not enrolled yet may have no address. #}
{%- set addresses = namespace(all=[]) %}
{%- set names = namespace(all=[]) %}
{%- macro host_name(id, name, address) %}

{{ id }}:
  host.present:
    - name: {{ name | json }}
    - ip: {{ address | json }}
    - clean: True
{%- endmacro %}
{#- The host's full name stays with its short name, which Debian's line for 127.0.1.1 has next to it, and
    comes first: `hostname -f` prints the first name of the line. #}
{%- set own_address = pillar.halite.nodes.get(own, {}).get('controlPlane') %}
{%- set full = grains.get('fqdn', '') %}
{%- if own_address and full != own and full.split('.')[0] == own %}
{%-   set names.all = names.all + [[full, own_address]] %}
{{- host_name('node-full-name', full, own_address) }}
{%- endif %}
{%- for name, other in pillar.halite.nodes | dictsort if other.controlPlane and name == own %}
{%-   set names.all = names.all + [[name, other.controlPlane]] %}
{{- host_name('node-name-' ~ name, name, other.controlPlane) }}
{%- endfor %}

api-endpoint:
  host.present:
    - name: {{ pillar.halite.apiServer.endpoint }}
    - ip: {{ pillar.halite.apiServer.address }}
    - clean: True
{%- if has_local_proxy %}
    # The name resolves to the proxy once that listens.
    - require:
        - service: haproxy
{%- endif %}
{%- set names.all = names.all + [[pillar.halite.apiServer.endpoint, pillar.halite.apiServer.address]] %}
{%- for name, other in pillar.halite.nodes | dictsort if other.controlPlane %}
{%-   set addresses.all = addresses.all + [other.controlPlane] %}
{%-   if name != own %}
{%-     set names.all = names.all + [[name, other.controlPlane]] %}
{{- host_name('node-name-' ~ name, name, other.controlPlane) }}
{%-   endif %}
{%- endfor %}
{%- if pillar.halite.siteRegistry.address %}
{%-   set names.all = names.all + [[pillar.halite.siteRegistry.name, pillar.halite.siteRegistry.address]] %}

site-registry-name:
  host.present:
    - name: {{ pillar.halite.siteRegistry.name | json }}
    - ip: {{ pillar.halite.siteRegistry.address }}
    - clean: True
{%- elif addresses.all %}

# Halite assigned the address of a node to this name. Other assignments by the site stay.
site-registry-name:
  host.absent:
    - name: {{ pillar.halite.siteRegistry.name | json }}
    - ip: {{ addresses.all | json }}
{%- endif %}


# Other programs that write the file at boot, such as cloud-init, have written it before the kubelet
# starts, which needs the API's name.
/var/lib/halite/restore-names.sh:
  file.managed:
    - source: salt://halite/host/names/restore.sh.j2
    - template: jinja
    - context:
        names: {{ names.all | json }}
    - check_cmd: sh -n
    - user: root
    - group: root
    - mode: '0644'
    - force: True
    - makedirs: True
    - require:
        - host: api-endpoint

/etc/systemd/system/halite-names.service:
  file.managed:
    - source: salt://halite/host/names/unit.conf
    - user: root
    - group: root
    - mode: '0644'
    - force: True

halite-names:
  service.running:
    - enable: True
    - unmask: True
    - only_drop_ins: []
    - require:
        - file: /var/lib/halite/restore-names.sh
    - watch:
        - file: /etc/systemd/system/halite-names.service
{%- if is_kubernetes_node %}

# A pod on the host's network has a copy of /etc/hosts from the start of its container. Programs
# that connect to the API by name are restarted after a change.
{%- set clients = 'kube-proxy|flanneld' if pillar.halite.cni.plugin == 'flannel' else 'kube-proxy' %}
kube-proxy-hosts:
  cmd.run:
    - name: pkill -x '{{ clients }}'
    - onlyif: pgrep -x '{{ clients }}'
    - onchanges:
        - host: api-endpoint
{%- endif %}
