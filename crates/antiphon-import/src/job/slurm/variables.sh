# What a Slurm batch script expects, from the variables of antiphon's task. What Slurm itself has set stays.
tasks_per_node=$1 steps_per_task=$2
shift 2
tasks=${PET_NNODES:-${WORLD_SIZE:-1}}
index=${ANTIPHON_TASK_INDEX:-0}
if [ "$tasks_per_node" -eq 0 ]; then
  # Where nobody says on how many nodes: as many as there are.
  others=${ANTIPHON_NODES//[!,]/}
  tasks_per_node=$((tasks / (${#others} + 1)))
  [ "$tasks_per_node" -gt 0 ] || tasks_per_node=1
fi
: "${SLURM_JOB_ID:=${ANTIPHON_JOB#job-}}"
: "${SLURM_NTASKS:=$((tasks * steps_per_task))}"
: "${SLURM_PROCID:=$((index * steps_per_task))}"
: "${SLURM_LOCALID:=${LOCAL_RANK:-0}}"
: "${SLURM_NNODES:=$(((tasks + tasks_per_node - 1) / tasks_per_node))}"
: "${SLURM_NODEID:=$((index / tasks_per_node))}"
: "${SLURMD_NODENAME:=${ANTIPHON_NODE:-localhost}}"
: "${SLURM_JOB_NODELIST:=${ANTIPHON_NODES:-$SLURMD_NODENAME}}"
: "${SLURM_LAUNCH_NODE_IPADDR:=${PET_MASTER_ADDR:-${MASTER_ADDR:-127.0.0.1}}}"
: "${SLURM_SUBMIT_DIR:=$PWD}"
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then
  : "${SLURM_JOB_GPUS:=$CUDA_VISIBLE_DEVICES}"
  devices=${CUDA_VISIBLE_DEVICES//[!,]/}
  : "${SLURM_GPUS_ON_NODE:=$((${#devices} + 1))}"
fi
if [ -n "${ANTIPHON_ARRAY_INDEX:-}" ]; then
  : "${SLURM_ARRAY_TASK_ID:=$ANTIPHON_ARRAY_INDEX}" "${SLURM_ARRAY_JOB_ID:=${ANTIPHON_ARRAY_JOB#job-}}"
fi
attempt=${ANTIPHON_ATTEMPT##*.}
if [ "${attempt:-1}" -gt 1 ]; then
  : "${SLURM_RESTART_COUNT:=$((attempt - 1))}"
fi
SLURM_JOBID=$SLURM_JOB_ID SLURM_NPROCS=$SLURM_NTASKS SLURM_JOB_NUM_NODES=$SLURM_NNODES SLURM_NODELIST=$SLURM_JOB_NODELIST
export "${!SLURM@}"
unset tasks index others devices attempt tasks_per_node steps_per_task
