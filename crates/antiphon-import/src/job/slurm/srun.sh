#!/bin/bash
# The batch script runs in every task of the job: srun runs its command in this one.
role=${ANTIPHON_ROLE:-} mine=0 segment=0
case "$role" in het[0-9]*) mine=${role#het} ;; esac
while [ $# -gt 0 ]; do
  group=$segment node='' count='' dir='' pairs=() command=()
  while [ $# -gt 0 ]; do
    case "$1" in
      --) shift; break ;;
      --*=*) name=${1%%=*} value=${1#*=}; shift ;;
      --label|--unbuffered|--exclusive|--overlap|--exact|--whole|--pty|--quiet|--verbose|--no-kill|--overcommit|--oversubscribe|--multi-prog|--contiguous|--disable-status|--kill-on-bad-exit|--immediate|--interactive|--nice|--preserve-env|--quit-on-interrupt|--spread-job|--use-min-nodes|--no-allocate|--resv-ports)
        name=$1 value=''; shift ;;
      --?*) name=$1 value=${2-}; shift; [ $# -eq 0 ] || shift ;;
      -[luQvXZsOkEHIK]*) name=$1 value=''; shift ;;
      -?) name=$1 value=${2-}; shift; [ $# -eq 0 ] || shift ;;
      -?*) name=${1:0:2} value=${1:2}; shift ;;
      *) break ;;
    esac
    case "$name" in
      --het-group|--pack-group) group=$value ;;
      -w|--nodelist) node=$value ;;
      -n|--ntasks) count=$value ;;
      -D|--chdir) dir=$value ;;
      --export) IFS=',' read -r -a pairs <<<"$value" ;;
    esac
  done
  while [ $# -gt 0 ] && [ "$1" != : ]; do command+=("$1"); shift; done
  [ $# -eq 0 ] || shift
  segment=$((segment + 1))
  [ "${#command[@]}" -gt 0 ] || continue
  if [ -n "$node" ] && [ "${command[0]##*/}" = hostname ]; then
    # Of an address: as other nodes reach it.
    if [ "${#command[@]}" -eq 1 ] || [ "$node" = "$SLURM_LAUNCH_NODE_IPADDR" ]; then
      echo "$node"
    else
      getent hosts "$node" | awk '{ print $1; exit }'
    fi
    exit
  fi
  case ",$group," in *",$mine,"*) ;; *) continue ;; esac
  if [ "$count" = 1 ] && [ -z "$node" ] && [ "$SLURM_NTASKS" -gt 1 ]; then node=$SLURM_LAUNCH_NODE_IPADDR; fi
  # What is for another task, that one runs: it has the same script.
  case "$node" in
    ''|"$SLURMD_NODENAME") ;;
    "$SLURM_LAUNCH_NODE_IPADDR") [ "$SLURM_PROCID" -eq 0 ] || continue ;;
    *) continue ;;
  esac
  for pair in "${pairs[@]}"; do
    case "$pair" in *=*) export "${pair?}" ;; esac
  done
  [ -z "$dir" ] || cd "$dir" || exit
  # In its place, so that a signal to srun reaches it.
  exec "${command[@]}"
done
