bin=${ANTIPHON_TASK_DIR:-$(mktemp -d)}/slurm
mkdir -p "$bin"
PATH=$bin:$PATH
