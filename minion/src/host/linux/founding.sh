# Starts etcd once in a container of its own, until it serves; then ends it, and moves its data to
# their place. Arguments: the directory in which the data are made, their place, the seconds until it
# serves, and the arguments of `ctr run` with IMAGE NAME COMMAND at their end.
set -u
scratch=$1 place=$2 seconds=$3 name=halite-etcd-founding
shift 3

# Remove the remains of an interrupted run.
clean
rm -rf "$scratch"
mkdir -m 0700 "$scratch" "$scratch/data" || exit
log=$scratch/log ended=$scratch/ended
trap clean EXIT
{
  ctr --namespace k8s.io run --rm --net-host "$@" >"$log" 2>&1
  echo $? >"$ended"
} &

fail() {
  echo "$1; its last output:" >&2
  tail -n 5 "$log" >&2
  exit 1
}

tries=$((seconds * 10))
until grep -qs 'ready to serve client requests' "$log"; do
  [ ! -e "$ended" ] || fail "etcd ended with $(cat "$ended")"
  [ $tries -gt 0 ] || fail "etcd did not serve within $seconds s"
  tries=$((tries - 1))
  sleep 0.1
done
ctr --namespace k8s.io task kill --signal SIGTERM $name || exit
wait
# The directory stays until the member is recorded: an interrupted run recognises its data by it.
mv -T "$scratch/data/member" "$place" && sync -f "$place"
