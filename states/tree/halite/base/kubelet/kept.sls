{#- Keeps the package and the configuration of the running kubelet before others replace them. The
    host's repository has only one bundle, so the package is downloaded before it changes.
    halite.base.kubelet puts both back if the new kubelet does not start, and removes them if it does. -#}
{%- from 'halite/map.jinja' import is_kubernetes_node with context %}
{%- from 'halite/base/kubelet/kept.jinja' import directory, download, installed, record, wanted with context %}
include:
  - halite.host.repository
{%- if is_kubernetes_node and wanted %}

# A host whose old bundle is gone has no package to keep, and is not left in its present state for it.
kubelet-kept:
  cmd.run:
    - name: >-
        rm -rf {{ directory }} && install -d -m 0700 {{ directory }} && cd {{ directory }} && found=$({{ installed() }}) &&
        cp -p /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env . && {{ download() }} && sync -f . &&
        echo "$found" >package && sync -f . ||
        echo 'cannot keep the package of the running kubelet; it cannot be put back if the new one does not start'
    - onlyif: >-
        found=$({{ installed() }}); test -n "$found" && test "$found" != {{ ('kubelet=' ~ wanted) | json }} &&
        test "$found" != "$(cat {{ record }} 2>/dev/null)"
    - require_in:
        - pkgrepo: halite-repository
{%- endif %}
