//! What becomes of each key of a manifest.

use super::super::keys::{Key, becomes, harmless, refused};

const IMAGE: &str = "the job file has no images: the command runs on the node as it is";
const ACCOUNT: &str = "a job runs as the server's user";
const NODES: &str =
    "antiphon chooses the nodes; name a GPU type or a `partition` to narrow them down";

pub(super) const META: &[Key] = &[
    becomes("name", "`name`"),
    becomes("generateName", "`name`"),
    becomes("namespace", "`team`, unless it is `default`"),
    becomes(
        "labels",
        "`kueue.x-k8s.io/queue-name` is `team`, `kueue.x-k8s.io/priority-class` `class`; others are for people",
    ),
    harmless("annotations", "for people and controllers"),
    harmless("creationTimestamp", "what the cluster says"),
    harmless("resourceVersion", "what the cluster says"),
    harmless("uid", "what the cluster says"),
    harmless("generation", "what the cluster says"),
    harmless("managedFields", "what the cluster says"),
    harmless("ownerReferences", "what the cluster says"),
    harmless("finalizers", "for controllers"),
];

pub(super) const JOB: &[Key] = &[
    becomes("template", "the pod below"),
    becomes(
        "parallelism",
        "tasks at once: of an indexed Job whose pods all run at once `tasks`, else `%` of `array`; 0 is `held`",
    ),
    becomes("completions", "`tasks`, or `array`"),
    becomes("completionMode", "`Indexed` sets `JOB_COMPLETION_INDEX`"),
    becomes("backoffLimit", "`retry.retries`"),
    becomes("activeDeadlineSeconds", "`run.time_limit`, of each attempt"),
    becomes("suspend", "`held`, unless Kueue's queue is named"),
    harmless("ttlSecondsAfterFinished", "ended jobs stay listed"),
    harmless("manualSelector", "for controllers"),
    harmless("selector", "for controllers"),
    harmless("managedBy", "for controllers"),
    harmless(
        "podReplacementPolicy",
        "an attempt starts when the one before has ended",
    ),
    refused(
        "backoffLimitPerIndex",
        "each member of an array has `retry.retries`",
    ),
    refused("maxFailedIndexes", "members of an array fail one by one"),
    refused(
        "podFailurePolicy",
        "which ends are tried again follows from how they ended",
    ),
    refused(
        "successPolicy",
        "a job has succeeded when all its tasks have",
    ),
];

pub(super) const JOB_SET: &[Key] = &[
    becomes("replicatedJobs", "a role each"),
    becomes("failurePolicy", "`maxRestarts` is `retry.retries`"),
    becomes("suspend", "`held`, unless Kueue's queue is named"),
    harmless("network", "tasks find each other by `PET_MASTER_ADDR`"),
    harmless("ttlSecondsAfterFinished", "ended jobs stay listed"),
    harmless("managedBy", "for controllers"),
    harmless("coordinator", "rank 0 is the first task"),
    refused("startupPolicy", "all roles start together"),
    refused(
        "successPolicy",
        "a job has succeeded when all its tasks have",
    ),
    refused("volumeClaimPolicies", "the job file has no mounts"),
];

pub(super) const REPLICATED: &[Key] = &[
    becomes("name", "the role"),
    becomes("replicas", "`tasks`, times `parallelism`"),
    becomes("template", "a Job's `spec`"),
    harmless("groupName", "for controllers"),
    refused("dependsOn", "all roles start together"),
];

pub(super) const PYTORCH: &[Key] = &[
    becomes(
        "pytorchReplicaSpecs",
        "one role where master and workers are alike, else two",
    ),
    becomes("runPolicy", "see below"),
    harmless(
        "nprocPerNode",
        "`PET_NPROC_PER_NODE` is the number of GPUs of a task",
    ),
    refused(
        "elasticPolicy",
        "a job has all its replicas, and is resized by antiphon",
    ),
];

pub(super) const RUN_POLICY: &[Key] = &[
    becomes("backoffLimit", "`retry.retries`"),
    becomes("activeDeadlineSeconds", "`run.time_limit`, of each attempt"),
    becomes("suspend", "`held`, unless Kueue's queue is named"),
    becomes(
        "schedulingPolicy",
        "`queue` is `team`, `priorityClass` `class`; gangs start whole",
    ),
    harmless("cleanPodPolicy", "nothing is left of an ended attempt"),
    harmless("ttlSecondsAfterFinished", "ended jobs stay listed"),
    harmless("managedBy", "for controllers"),
];

pub(super) const REPLICAS: &[Key] = &[
    becomes("replicas", "`tasks`"),
    becomes("template", "the pod below"),
    harmless(
        "restartPolicy",
        "a failed attempt is tried again as a whole: `[retry]`",
    ),
];

pub(super) const TRAIN_JOB: &[Key] = &[
    becomes("trainer", "see below"),
    becomes("suspend", "`held`, unless Kueue's queue is named"),
    refused(
        "runtimeRef",
        "the file does not hold the runtime: what it sets is not known",
    ),
    refused("initializer", "models and data have to be there"),
    refused("podSpecOverrides", "what they override is the runtime's"),
    refused(
        "podTemplateOverrides",
        "what they override is the runtime's",
    ),
    harmless("labels", "for people"),
    harmless("annotations", "for people"),
    harmless("managedBy", "for controllers"),
];

pub(super) const TRAINER: &[Key] = &[
    becomes("command", "`run.command`"),
    becomes("args", "behind `command`"),
    becomes("env", "as a container's `env`"),
    becomes("numNodes", "`tasks`"),
    becomes(
        "numProcPerNode",
        "`gpus`, times nodes, where no resources are named",
    ),
    becomes("resourcesPerNode", "as a container's `resources`"),
    refused("image", IMAGE),
];

pub(super) const VOLCANO: &[Key] = &[
    becomes("tasks", "a role each"),
    becomes("queue", "`team`"),
    becomes("priorityClassName", "`class`, where it is called like one"),
    becomes("maxRetry", "`retry.retries`"),
    becomes("minAvailable", "all of them: a gang starts whole"),
    harmless("schedulerName", "antiphon schedules"),
    harmless(
        "plugins",
        "tasks find each other by `PET_MASTER_ADDR`; there is no ssh between them",
    ),
    harmless("ttlSecondsAfterFinished", "ended jobs stay listed"),
    harmless("policies", "when one task fails the attempt has failed"),
    refused(
        "volumes",
        "the job file has no mounts: paths of the node are seen as they are",
    ),
    refused("networkTopology", "`span` says how far apart tasks may be"),
    refused("runningEstimate", "`estimate` says it"),
];

pub(super) const TASK: &[Key] = &[
    becomes("name", "the role"),
    becomes("replicas", "`tasks`"),
    becomes("template", "the pod below"),
    harmless("minAvailable", "a gang starts whole"),
    harmless("policies", "when one task fails the attempt has failed"),
    harmless("maxRetry", "a failed attempt is tried again as a whole"),
    refused("dependsOn", "all roles start together"),
    refused("topologyPolicy", "antiphon places tasks"),
];

pub(super) const POD_GROUP: &[Key] = &[
    becomes("minMember", "all of them: a gang starts whole"),
    becomes("queue", "`team`"),
    becomes("priorityClassName", "`class`, where it is called like one"),
    harmless("minResources", "a gang starts whole"),
    harmless("minTaskMember", "a gang starts whole"),
    harmless("scheduleTimeoutSeconds", "a gang waits in the queue"),
    refused("networkTopology", "`span` says how far apart tasks may be"),
];

pub(super) const POD: &[Key] = &[
    becomes("containers", "the first that asks for GPUs, or the first"),
    becomes("nodeSelector", "`gpu_type`, by the labels below"),
    becomes(
        "affinity",
        "`gpu_type`, where it names values of those labels",
    ),
    becomes("activeDeadlineSeconds", "`run.time_limit`"),
    becomes("terminationGracePeriodSeconds", "`run.grace`"),
    becomes("priorityClassName", "`class`, where it is called like one"),
    becomes(
        "volumes",
        "nothing, where a path of the node is mounted as it is called there, or memory at `/dev/shm`; else not honored",
    ),
    harmless(
        "restartPolicy",
        "a failed attempt is tried again as a whole: `[retry]`",
    ),
    harmless("tolerations", "antiphon chooses the nodes"),
    harmless("schedulerName", "antiphon schedules"),
    harmless("imagePullSecrets", "no image is pulled"),
    harmless("hostNetwork", "tasks see the node's network"),
    harmless("hostIPC", "tasks see the node's memory"),
    harmless("hostPID", "tasks see the node's processes"),
    harmless("dnsPolicy", "tasks see the node's network"),
    harmless("dnsConfig", "tasks see the node's network"),
    harmless("subdomain", "tasks find each other by `PET_MASTER_ADDR`"),
    harmless("hostname", "tasks see the node's name"),
    harmless("setHostnameAsFQDN", "tasks see the node's name"),
    harmless("runtimeClassName", "no container is run"),
    harmless("enableServiceLinks", "there are no services"),
    harmless("automountServiceAccountToken", "there is no token"),
    harmless("shareProcessNamespace", "tasks see the node's processes"),
    harmless("preemptionPolicy", "classes say who gives way"),
    harmless("priority", "what the cluster says"),
    harmless("os", "nodes run Linux"),
    refused("serviceAccountName", ACCOUNT),
    refused("serviceAccount", ACCOUNT),
    refused("securityContext", ACCOUNT),
    refused("initContainers", "nothing runs in front of the command"),
    refused("ephemeralContainers", "one container runs"),
    refused("nodeName", NODES),
    refused(
        "topologySpreadConstraints",
        "`span` says how far apart tasks may be",
    ),
    refused("schedulingGates", "`held` keeps a job from starting"),
    refused("resourceClaims", "give GPUs as `nvidia.com/gpu`"),
    refused("hostAliases", "names are the node's"),
    refused("readinessGates", "a task is ready when it runs"),
    refused("overhead", "no container is run"),
    refused("resources", "give resources of the container"),
    refused("schedulingGroup", "a gang starts whole"),
];

pub(super) const CONTAINER: &[Key] = &[
    becomes("command", "`run.command`; `$(NAME)` is put in"),
    becomes("args", "behind `command`"),
    becomes(
        "env",
        "`run.environment`, where it has a value; of a `secretKeyRef` `run.secrets`, from the server's variable of the same name; `fieldRef` and the like are not honored",
    ),
    becomes("workingDir", "`run.workdir`"),
    becomes("resources", "see below; requests, else limits"),
    becomes("volumeMounts", "see `volumes`"),
    harmless("name", "for people"),
    harmless("imagePullPolicy", "no image is pulled"),
    harmless("ports", "tasks see the node's network"),
    harmless("tty", "output goes to `antiphon logs`"),
    harmless("stdin", "standard input is empty"),
    harmless("stdinOnce", "standard input is empty"),
    harmless("terminationMessagePath", "output goes to `antiphon logs`"),
    harmless("terminationMessagePolicy", "output goes to `antiphon logs`"),
    harmless(
        "restartPolicy",
        "a failed attempt is tried again as a whole: `[retry]`",
    ),
    harmless("resizePolicy", "antiphon resizes jobs by itself"),
    refused("image", IMAGE),
    refused("envFrom", "write the variables into `run.environment`"),
    refused("securityContext", ACCOUNT),
    refused(
        "livenessProbe",
        "the rule `hang` looks for tasks that stand still",
    ),
    refused("readinessProbe", "a task is ready when it runs"),
    refused("startupProbe", "a task is ready when it runs"),
    refused("lifecycle", "a task is sent SIGTERM before it ends"),
    refused("volumeDevices", "the job file has no mounts"),
];

pub(super) const RESOURCE: &[Key] = &[
    becomes("nvidia.com/gpu", "`gpus`, times tasks"),
    becomes("amd.com/gpu", "`gpus`, times tasks"),
    becomes(
        "nvidia.com/mig-*",
        "`gpus`, and the profile as `gpu_type`: `1g.10gb`",
    ),
    becomes("cpu", "`cpus`, rounded up"),
    becomes("memory", "`memory`"),
    becomes("ephemeral-storage", "`scratch`"),
    harmless("pods", "what the cluster says"),
    harmless("rdma/*", "a node's network is its tasks'"),
    harmless("vpc.amazonaws.com/efa", "a node's network is its tasks'"),
    refused(
        "nvidia.com/gpu.shared",
        "a share of a GPU is a number of `gpus` below 1",
    ),
    refused("hugepages-*", "they are not counted"),
];

pub(super) const SELECTOR: &[Key] = &[
    becomes("nvidia.com/gpu.product", "`gpu_type`"),
    becomes("amd.com/gpu.product-name", "`gpu_type`"),
    becomes("cloud.google.com/gke-accelerator", "`gpu_type`"),
    becomes("karpenter.k8s.aws/instance-gpu-name", "`gpu_type`"),
    becomes("gpu.nvidia.com/model", "`gpu_type`"),
    becomes("gpu.nvidia.com/class", "`gpu_type`"),
    harmless("nvidia.com/gpu.present", "GPUs are asked for"),
    harmless("kubernetes.io/os", "nodes run Linux"),
    harmless(
        "kubernetes.io/arch",
        "the command runs on the node as it is",
    ),
];
