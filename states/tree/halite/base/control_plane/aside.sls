{#- only: orchestration -#}
{#- Stops the API server of a host that is about to reboot while its etcd still serves: clients get
    their answers and switch to another one. The kubelet would restart it, so the kubelet is stopped
    first; booting starts both. For the orchestration reboot_node. -#}
{%- from 'halite/base/map.jinja' import api_server_ended with context %}
api-server-elsewhere:
  cmd.run:
    - name: {{ ('systemctl stop kubelet.service || exit; pkill -TERM -x kube-apiserver; ' ~ api_server_ended()) | json }}
    - onlyif: pgrep -x kube-apiserver
