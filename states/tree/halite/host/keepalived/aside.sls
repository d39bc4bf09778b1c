{#- Moves the virtual address to another host, if this one has it, and lets it compete again: it
    does not take the address back while another host has it (`nopreempt`). For the step
    halite.vip_moved_off, which has checked that another host can take it. -#}
{%- from 'halite/cluster.jinja' import runs_keepalived with context %}
{%- if runs_keepalived %}
{%-   set api = pillar.halite.apiServer %}
{%-   set vip = api.vip %}
# keepalived announces its stop to its peers, so that another host takes the address at once, and ends
# a second later. Until then the API server of this host still answers at the address, on the interface
# lo: requests that have arrived get their answers, and are not lost until their clients time out.
# The kernel removes it there even if this is killed. Without this host, the address is then reachable
# only if another one has it. The certificates have the name, not the address. Until then the API has
# no address: after 10 s, or if this is interrupted earlier, keepalived is started again.
vip-elsewhere:
  cmd.run:
    - name: >-
        trap 'exit 1' HUP INT TERM; trap 'leave_lo; systemctl start keepalived' EXIT;
        leave_lo() { ip address delete {{ vip }}/32 dev lo 2>/dev/null; };
        ip address replace {{ vip }}/32 dev lo valid_lft 3 preferred_lft 3;
        systemctl stop keepalived; leave_lo;
        timeout --foreground 10 sh -c "until
        curl --silent --fail --output /dev/null --max-time 1 --noproxy '*' --cacert /etc/kubernetes/pki/ca.crt
        --resolve {{ api.endpoint }}:{{ api.port }}:{{ vip }} https://{{ api.endpoint }}:{{ api.port }}/readyz;
        do sleep 0.2; done" && exit 0;
        echo "no other host served the API at {{ vip }} within 10 s" >&2; exit 1
    - onlyif: ip -4 -o address show to {{ vip }} | grep -q .

keepalived:
  service.running:
    - require:
        - cmd: vip-elsewhere
{%- endif %}
