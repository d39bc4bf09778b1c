{#- only: orchestration -#}
{#- Ends the API server of a host that is about to reboot, while its etcd still serves: clients get their
    answers, and go to another one. The kubelet would start it again, so it ends first; the boot starts
    both. For the orchestration reboot_node. -#}
{%- from 'halite/base/map.jinja' import api_server_ended with context %}
api-server-elsewhere:
  cmd.run:
    - name: {{ ('systemctl stop kubelet.service || exit; pkill -TERM -x kube-apiserver; ' ~ api_server_ended()) | json }}
    - onlyif: pgrep -x kube-apiserver
