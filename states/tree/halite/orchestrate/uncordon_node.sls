{#- Marks a node schedulable again; `pillar.node` is its name (`ctl node uncordon`). -#}
uncordoned:
  halite.uncordon:
    - node: {{ pillar.node }}
    - timeout: 60
