#!/bin/bash
# The nodes of the job, the first as other nodes reach it; everything else is Slurm's own, where it is there.
list=${3:-$SLURM_JOB_NODELIST}
case "${1-} ${2-}" in
  'show hostname'|'show hostnames'|'show hostlistsorted')
    case "$list" in
      *'['*) ;;
      *)
        echo "$SLURM_LAUNCH_NODE_IPADDR"
        tr ',' '\n' <<<"$list" | tail -n +2
        exit
        ;;
    esac
    ;;
  requeue*)
    echo "antiphon puts the job back into the queue by itself" >&2
    exit
    ;;
esac
PATH=${PATH//"${0%/*}:"/}
exec scontrol "$@"
