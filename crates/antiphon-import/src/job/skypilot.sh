export SKYPILOT_NODE_RANK="${ANTIPHON_TASK_INDEX:-0}"
export SKYPILOT_NUM_NODES="${PET_NNODES:-${WORLD_SIZE:-1}}"
export SKYPILOT_TASK_ID="${ANTIPHON_ATTEMPT:-}"
others=",${ANTIPHON_NODES:-${ANTIPHON_NODE:-localhost}}"
others=${others#,*,}
[ "$SKYPILOT_NUM_NODES" -gt 1 ] || others=
export SKYPILOT_NODE_IPS="${PET_MASTER_ADDR:-${MASTER_ADDR:-127.0.0.1}}${others:+,$others}"
SKYPILOT_NODE_IPS=${SKYPILOT_NODE_IPS//,/$'\n'}
devices=${CUDA_VISIBLE_DEVICES//[!,]/}
export SKYPILOT_NUM_GPUS_PER_NODE=0
[ -z "${CUDA_VISIBLE_DEVICES:-}" ] || SKYPILOT_NUM_GPUS_PER_NODE=$((${#devices} + 1))
if [ -n "$1" ]; then
  bash -c "$1" || exit
fi
exec bash -c "$2"
