{#- Keeps the package and the configuration of the running kubelet before others replace them. The
    host's repository has only one bundle, so the package is downloaded before it changes.
    halite.base.kubelet puts both back if the new kubelet does not start, and removes them if it does. -#}
{%- from 'halite/map.jinja' import is_kubernetes_node with context %}
{%- from 'halite/base/kept.jinja' import is_replaced_soon, keep with context %}
{%- from 'halite/base/kubelet/kept.jinja' import directory, is_kept, record, wanted with context %}
include:
  - halite.host.repository
{%- if is_kubernetes_node and is_kept %}
{%- set configuration = 'cp -p /var/lib/kubelet/config.yaml /var/lib/kubelet/kubeadm-flags.env .' %}

# A host whose old bundle is gone has no package to keep, and is not left in its present state for it.
kubelet-kept:
  cmd.run:
    - name: >-
        {{ keep(directory, record, 'kubelet', configuration) | indent(8) }} ||
        echo 'cannot keep the package of the running kubelet; it cannot be put back if the new one does not start'
    - onlyif: >-
        {{ is_replaced_soon(directory, record, 'kubelet', 'kubelet=' ~ wanted) | indent(8) }}
    - require_in:
        - pkgrepo: halite-repository
{%- endif %}
