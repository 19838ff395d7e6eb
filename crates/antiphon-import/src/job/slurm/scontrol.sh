# The nodes of the job, the first as other nodes reach it.
scontrol() {
  case "${1-} ${2-}" in
    'show hostname'|'show hostnames'|'show hostlistsorted')
      case "${3:-$SLURM_JOB_NODELIST}" in
        *'['*) command scontrol "$@" ;;
        *)
          printf '%s\n' "$SLURM_LAUNCH_NODE_IPADDR"
          printf '%s\n' "${3:-$SLURM_JOB_NODELIST}" | tr ',' '\n' | tail -n +2
          ;;
      esac
      ;;
    requeue*) echo "antiphon puts the job back into the queue by itself" >&2 ;;
    *) command scontrol "$@" ;;
  esac
}
export -f scontrol
