{#- only: orchestration -#}
{#- The packages that Halite installed and nothing else needs. Tools that the operator may use,
    firewalld and chrony stay, and so does a program whose configuration is not Halite's, and a
    package that another one needs. -#}
{%- from 'halite/map.jinja' import is_red_hat with context %}
include:
  - halite.leave.host

kubernetes-packages:
  pkg.removed:
    - pkgs: [containerd, kubernetes-cni, kubelet, kubeadm, kubectl, distribution-registry]
    - require:
        - sls: halite.leave.host

{#- Succeeds if an installed package outside this list needs one of them. -#}
{%- macro needed(packages) -%}
{%- if is_red_hat -%}
installed=$(rpm -qa --qf '%{NAME}\n' {{ packages | join(' ') }}); test -n "$installed" && ! rpm -e --test $installed
{%- else -%}
apt-get -q -s remove $(dpkg-query -W -f '${Package}\n' {{ packages | join(' ') }}) | grep '^Remv ' | grep -qvE '^Remv ({{ packages | join('|') }}) '
{%- endif -%}
{%- endmacro %}

# Only programs that ran containers start it, and those are removed by now.
container-runtime-package:
  pkg.removed:
    - pkgs: [runc]
    - unless: {{ needed(['runc']) | json }}
    - require:
        - pkg: kubernetes-packages

# Halite's configuration is removed by now: any other is the operator's.
{%- for program, configuration in [('haproxy', '/etc/haproxy/haproxy.cfg'), ('keepalived', '/etc/keepalived/keepalived.conf')] %}

{{ program }}-package:
  pkg.removed:
    - pkgs: [{{ program }}]
    - unless: {{ ('test -e ' ~ configuration ~ ' || { ' ~ needed([program]) ~ '; }') | json }}
    - require:
        - pkg: kubernetes-packages
{%- endfor %}
{%- set nginx = ['nginx', 'nginx-core', 'nginx-filesystem'] if is_red_hat else
               ['nginx-light', 'nginx', 'nginx-common', 'libnginx-mod-http-echo'] %}
{%- set changed = 'rpm -V nginx-core nginx' if is_red_hat else 'dpkg -V nginx-common' %}

# The same applies to nginx, also on a host that once served bundles: an nginx without a site was
# Halite's. Another site is the operator's, and so is a change of the main configuration.
bundle-server-packages:
  pkg.removed:
    - pkgs: {{ nginx | json }}
    - unless: {{ ('ls -A /etc/nginx/conf.d /etc/nginx/sites-enabled /etc/nginx/default.d 2>/dev/null | grep -v : | grep -q . || ' ~
                  changed ~ ' | grep -q /etc/nginx/nginx.conf || { ' ~ needed(nginx) ~ '; }') | json }}
    - require:
        - pkg: kubernetes-packages
