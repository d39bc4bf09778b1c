# Starts the etcd of a joining host once, in a container of its own, until it has the other members' data;
# then ends it. An etcd that gets its data as a snapshot may serve only after seven seconds: it waits to
# apply its own announcement, which may be in the snapshot already (etcd, server/etcdserver/server.go,
# publishV3). One that starts with data does not. A learner has no vote, so no member misses it.
#
# This only saves time. Any failure here also affects the pod or unit that follows, and a state waits for
# that; so the script always succeeds. Arguments: the file that exists while the container may exist, the
# member's directory, the seconds without progress after which it ends, and the arguments of `ctr run` with
# IMAGE NAME COMMAND at their end.
set -u
mark=$1 place=$2 seconds=$3 name=halite-etcd-joining
shift 3

has() {
  for file; do
    [ ! -e "$file" ] || return 0
  done
  return 1
}

# The snapshot of the membership is written before the snapshot of the keys gets its name. Without a snapshot,
# a complete log leads to a serving member.
has_data() {
  { has "$place"/snap/*.snap && ! has "$place"/snap/*.snap.db; } || grep -qs 'ready to serve client requests' "$mark.log"
}

# Remove the remains of an interrupted run. A learner that has started continues with its data: it must not lose them.
[ ! -e "$mark" ] || clean
rm -f "$mark.log" "$mark.ended"
if ! has "$place"/wal/*.wal; then
  : >"$mark"
  {
    ctr --namespace k8s.io run --rm --net-host "$@" >"$mark.log" 2>&1
    : >"$mark.ended"
  } &
  tries=$((seconds * 10)) seen=
  until [ -e "$mark.ended" ] || has_data || [ $tries -eq 0 ]; do
    sleep 0.1
    tries=$((tries - 1))
    # A large snapshot takes time: the file that receives it grows.
    now=$(ls -l "$place/snap" 2>/dev/null)
    [ "$now" = "$seen" ] || tries=$((seconds * 10))
    seen=$now
  done
  ctr --namespace k8s.io task kill --signal SIGTERM $name >/dev/null 2>&1
  tries=100
  until [ -e "$mark.ended" ] || [ $tries -eq 0 ]; do
    sleep 0.1
    tries=$((tries - 1))
  done
  clean
  wait
  # Not only its log, but the directory's names too.
  [ ! -d "$place" ] || sync -f "$place"
fi
rm -f "$mark.log" "$mark.ended" "$mark"
