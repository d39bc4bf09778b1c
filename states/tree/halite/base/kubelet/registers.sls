{#- Lets the kubelet of a new control plane register at once. It has been trying to reach the API
    server of its own host since before that ran, so client-go now pauses up to 30 seconds.
    Restarted, it begins with short pauses; containers stay. For the orchestration add_node. -#}
{%- from 'halite/map.jinja' import node with context %}
kubelet-asks-again:
  cmd.run:
    - name: systemctl restart kubelet.service
    - unless: >-
        kubectl --kubeconfig /etc/kubernetes/kubelet.conf --request-timeout 5s get node {{ node.name }}
        -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' | grep -qx True
