package pools

import (
	"fmt"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"gbatch/internal/migrate"
	"gbatch/internal/walltime"
)

const gpus = "gres/gpu"

// computePool: a partition, a reservation of what is kept back, and for each tenant an account with the tenant's limit
// and guarantee in this partition.
func (in *reading) computePool(o object, pool, nodes string) {
	spec := o.object("spec")
	if kind := spec.text("poolType"); kind != "" && kind != "gpu" {
		in.add(migrate.Unsupported, "spec.poolType", "'%s': quotas and reservations are written for gres/gpu; write the "+
			"other kind's name as a GRES, and set its limits with gacctmgr", kind)
	}
	capacity := spec.object("capacity")
	total, reserved := capacity.number("total"), capacity.number("reserved")
	capacity.rest()

	virtual := spec.object("virtualization")
	on, there := virtual.yes("enabled")
	strategy := virtual.text("strategy")
	if on || !there && strategy != "" {
		what := map[string]string{
			"mig": "drain the nodes, and `gcontrol mig apply node=NODES layout=...` divides their GPUs",
			"time-slicing": "write GresTypes=gpu,shard and Gres=gpu:N,shard:M of the nodes in gbatch.conf; jobs ask for " +
				"--gres=shard:1",
			"vgpu": "gbatch shares GPUs as shard, mps or MIG instances instead: gres.conf(5)",
		}[strategy]
		if what == "" {
			what = "gbatch shares GPUs as shard, mps or MIG instances: gres.conf(5)"
		}
		in.add(migrate.Person, "spec.virtualization", "%s: %s", strategy, what)
	}
	virtual.rest()

	var accounts []string
	quotas := map[string][]string{}
	var limits, guaranteed int64
	for _, q := range spec.list("quotas") {
		tenant := q.text("tenant")
		limit, sure := q.number("limit"), q.number("guaranteed")
		q.rest()
		tenant = strings.ToLower(tenant)
		if _, twice := quotas[tenant]; twice || !goodName(tenant) {
			in.add(migrate.Person, q.path, "'%.80s' is no name of an account, or stands there twice", tenant)
			continue
		}
		set := in.limits(limit, sure)
		if sure > max(limit, 0) && limit >= 0 {
			in.add(migrate.Person, q.path, "it guarantees %d of at most %d", sure, limit)
		}
		limits, guaranteed = limits+max(limit, 0), guaranteed+max(sure, 0)
		in.step(Account, tenant, nil, nil)
		accounts, quotas[tenant] = append(accounts, tenant), set
	}
	if total >= 0 && guaranteed > total-max(reserved, 0) {
		in.add(migrate.Person, "spec.quotas", "%d GPUs are guaranteed, and %d are not reserved: not all can have theirs "+
			"at once", guaranteed, total-max(reserved, 0))
	}
	if total >= 0 && limits > total {
		in.add(migrate.Kept, "spec.quotas", "the limits add up to %d of %d: beyond the guarantees GPUs are borrowed", limits,
			total)
	}
	spec.rest()

	once := []string{"State=UP"}
	if nodes == "" {
		nodes = "ALL"
		in.add(migrate.Translated, "", "its partition gets all nodes: --nodes %s=NODES says which", pool)
	}
	once = append(once, "Nodes="+nodes)
	var set []string
	if len(accounts) > 0 {
		set = []string{"AllowAccounts=" + strings.Join(accounts, ",")}
	}
	in.step(Partition, pool, set, once).GPUs = max(total, 0)
	for _, tenant := range accounts {
		in.step(Account, tenant, quotas[tenant], nil).Pool = pool
	}
	if reserved > 0 {
		in.step(Reservation, pool+"-reserved", nil, []string{"PartitionName=" + pool, "StartTime=now", "Duration=UNLIMITED",
			fmt.Sprintf("TRES=%s=%d", gpus, reserved), "Users=root"})
	}
}

// limits gives the words of a limit and a guarantee of GPUs; -1: there is none.
func (in *reading) limits(limit, guaranteed int64) (set []string) {
	if limit >= 0 {
		in.w.Limits = true
		set = append(set, fmt.Sprintf("GrpTRES=%s=%d", gpus, limit))
	}
	if guaranteed > 0 {
		in.w.Guarantees = true
		set = append(set, fmt.Sprintf("GuaranteedTRES=%s=%d", gpus, guaranteed))
	}
	return set
}

// configMap has a scheduler's queues as a text of YAML: a QOS for each.
func (in *reading) configMap(data object) {
	text := data.text("queues.yaml")
	data.rest()
	if text == "" {
		in.add(migrate.Unsupported, "", "a ConfigMap without queues.yaml in data has nothing for gbatch")
		return
	}
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		in.add(migrate.Person, "data[queues.yaml]", "it can't be read as YAML: %v", err)
		return
	}
	o := object{in, "queues.yaml", m}
	type queue struct {
		name    string
		weight  int64
		preempt bool
		set     []string
	}
	var list []queue
	for _, q := range o.list("queues") {
		e := queue{name: strings.ToLower(q.text("name")), weight: max(q.number("weight"), 0)}
		limit, sure := q.number("maxCapacity"), q.number("guaranteedCapacity")
		switch policy := q.text("preemptionPolicy"); policy {
		case "PreemptLowerPriority":
			e.preempt = true
		case "", "Never":
		default:
			q.wrong("preemptionPolicy", "PreemptLowerPriority or Never", policy)
		}
		q.rest()
		if !goodName(e.name) {
			in.add(migrate.Person, q.path, "'%.80s' is no name of a QOS", e.name)
			continue
		}
		e.set = append([]string{fmt.Sprintf("Priority=%d", e.weight)}, in.limits(limit, sure)...)
		list = append(list, e)
	}
	for _, q := range list { // all are there before one names another
		in.step(QOS, q.name, q.set, nil)
	}
	for _, q := range list {
		var lower []string
		for _, other := range list {
			if q.preempt && other.weight < q.weight {
				lower = append(lower, other.name)
			}
		}
		if len(lower) > 0 {
			in.w.Guarantees = true // it needs PreemptType=preempt/qos as well
			in.step(QOS, q.name, []string{"Preempt=" + strings.Join(lower, ",")}, nil)
		}
	}
	if len(list) > 0 {
		in.add(migrate.Translated, "", "a queue is a QOS: gsubmit --qos=%s", list[0].name)
	}
	fair := o.object("fairShare")
	if on, there := fair.yes("enabled"); there && on {
		in.add(migrate.Person, fair.path, "write QueuePolicy=fairshare for the partitions in gbatch.conf, or "+
			"PriorityType=priority/multifactor and PriorityWeightFairshare=: the default order knows no shares")
	}
	if policy := fair.text("preemptionPolicy"); policy != "" {
		in.add(migrate.Ignored, fair.path+".preemptionPolicy", "the QOS say who preempts whom")
	}
	fair.rest()
	o.rest()
}

// volcanoQueue: a QOS.
func (in *reading) volcanoQueue(o object, name string) {
	spec := o.object("spec")
	name = strings.ToLower(name)
	var set, tres []string
	if weight := spec.number("weight"); weight >= 0 {
		set = append(set, fmt.Sprintf("Priority=%d", weight))
	}
	capability := spec.object("capability")
	for _, key := range []string{"cpu", "nvidia.com/gpu"} {
		if n := capability.number(key); n >= 0 {
			tres = append(tres, fmt.Sprintf("%s=%d", strings.Replace(key, "nvidia.com/gpu", gpus, 1), n))
		}
	}
	if memory := capability.text("memory"); memory != "" {
		in.add(migrate.Person, capability.path+".memory", "'%s': gacctmgr modify qos %s set GrpTRES=mem=... limits memory",
			memory, name)
	}
	capability.rest()
	if len(tres) > 0 {
		in.w.Limits = true
		set = append(set, "GrpTRES="+strings.Join(tres, ","))
	}
	if back, there := spec.yes("reclaimable"); there && !back {
		set = append(set, "Flags+=NoPreempt")
	}
	switch state := spec.text("state"); state {
	case "", "Open":
	case "Closed", "Closing":
		set = append(set, "GrpSubmitJobs=0")
	default:
		spec.wrong("state", "Open, Closed or Closing", state)
	}
	affinity := spec.object("affinity")
	for _, key := range []string{"nodeGroupAffinity", "nodeGroupAntiAffinity"} {
		group := affinity.object(key)
		for _, how := range []string{"requiredDuringSchedulingIgnoredDuringExecution",
			"preferredDuringSchedulingIgnoredDuringExecution"} {
			words := group.words(how)
			if len(words) == 0 {
				continue
			}
			list := strings.Join(words, "|")
			if key == "nodeGroupAntiAffinity" {
				list = "!" + strings.Join(words, "&!")
			}
			option := "--constraint='" + list + "'"
			if strings.HasPrefix(how, "preferred") {
				option = "--prefer='" + list + "'"
			}
			in.add(migrate.Person, group.path, "a QOS has no nodes: give the nodes of a group its name as Feature= in "+
				"gbatch.conf, and its jobs %s", option)
		}
		group.rest()
	}
	affinity.rest()
	spec.rest()
	in.step(QOS, name, set, nil)
}

// elasticJob: a script.
func (in *reading) elasticJob(o object, name string) {
	spec := o.object("spec")
	var b strings.Builder
	line := func(format string, a ...any) { fmt.Fprintf(&b, "#SBATCH "+format+"\n", a...) }
	b.WriteString("#!/bin/bash\n# " + in.file + ": " + in.name + "\n")
	line("--job-name=%s", name)
	if pool := spec.text("pool"); goodName(pool) {
		line("--partition=%s", pool)
	} else if pool != "" {
		in.add(migrate.Person, "spec.pool", "'%.80s' is no name of a partition", pool)
	}
	scaling := spec.object("scaling")
	least, most := max(scaling.number("minReplicas"), 1), scaling.number("maxReplicas")
	each := scaling.number("gpuPerReplica")
	scaling.rest()
	start := "srun"
	if most > least {
		start = "grun --elastic"
		line("--elastic=%d-%d", least, most)
		in.add(migrate.Translated, "spec.scaling", "--elastic=%d-%d: it starts with as many nodes as are free, gets more "+
			"later, and gives back what others need; grun --elastic begins the command again when that happens", least, most)
	} else {
		line("--nodes=%d", least)
	}
	line("--ntasks-per-node=1")
	if each > 0 {
		line("--gpus-per-node=%d", each)
	}
	if p := spec.number("priority"); p >= 0 {
		in.add(migrate.Person, "spec.priority", "%d: give the job a QOS that has this Priority (gsubmit --qos=)", p)
	}
	if can, there := spec.yes("preemptible"); there && !can {
		in.add(migrate.Person, "spec.preemptible", "give the job a QOS with Flags=NoPreempt")
	} else if can {
		line("--requeue")
	}
	command, needs := in.command(spec.object("template"), start)
	for _, option := range needs {
		line("%s", option)
	}
	b.WriteString("\n" + command + "\n")
	spec.rest()
	in.w.Jobs = append(in.w.Jobs, Job{Name: name, Script: b.String()})
}

// command makes the line that starts a template's container as tasks, with start; needs are options of the job.
func (in *reading) command(template object, start string) (command string, needs []string) {
	pod := template
	if template.has("spec") {
		pod = template.object("spec")
		template.object("metadata")
		template.rest()
	}
	containers := pod.list("containers")
	if len(containers) == 0 {
		in.add(migrate.Person, "spec.template", "it has no containers: write the job's command into its script")
		pod.rest()
		return "srun true # the job's command", nil
	}
	if len(containers) > 1 {
		in.add(migrate.Person, pod.at("containers"), "a job has one command: the first container's is in its script")
	}
	c := containers[0]
	line := start
	if image := c.text("image"); image != "" {
		line += " --container-image=" + quote(imageOf(image))
		in.add(migrate.Translated, c.at("image"), "--container-image=%.200s: the command runs in it", imageOf(image))
	}
	var out []string
	for _, e := range c.list("env") {
		name, value := e.text("name"), e.text("value")
		e.rest()
		if !goodName(name) || strings.ContainsAny(name, "-.") {
			in.add(migrate.Person, e.path, "'%.80s' is no name of a variable", name)
			continue
		}
		out = append(out, "export "+name+"="+quote(value))
	}
	for _, w := range append(c.words("command"), c.words("args")...) {
		if strings.Contains(w, "$(") {
			in.add(migrate.Person, c.path, "%.80s: variables of Kubernetes are $NAME in a script; WORLD_SIZE is "+
				"SLURM_NNODES, RANK is SLURM_NODEID", w)
		}
		line += " " + quote(w)
	}
	c.text("name")
	if c.has("resources") {
		needs = in.resources(c.object("resources"))
	}
	c.rest()
	pod.rest()
	return strings.Join(append(out, line), "\n"), needs
}

// resources are what a container may use, on each node of the job: of what is asked for and what is the limit, the
// limit.
func (in *reading) resources(o object) (options []string) {
	asked, limit := o.object("requests"), o.object("limits")
	for _, at := range []object{limit, asked} {
		memory, cpus := at.quantity("memory"), at.quantity("cpu")
		for _, kind := range []string{"nvidia.com/gpu", "amd.com/gpu"} {
			at.text(kind) // gpuPerReplica says it
		}
		at.rest()
		if len(options) > 0 {
			continue
		}
		if memory > 0 {
			options = append(options, "--mem="+walltime.FormatMem(int64(math.Ceil(memory/(1<<20)))))
		}
		if cpus > 0 {
			options = append(options, fmt.Sprintf("--cpus-per-task=%d", int64(math.Ceil(cpus))))
		}
	}
	o.rest()
	return options
}

// imageOf writes an image as --container-image takes it: a registry ends with #.
func imageOf(image string) string {
	host, rest, ok := strings.Cut(image, "/")
	if ok && (strings.ContainsAny(host, ".:") || host == "localhost") {
		return host + "#" + rest
	}
	return image
}

// quote writes a word for the shell.
func quote(w string) string {
	plain := w != ""
	for _, r := range w {
		plain = plain && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("-_./=:,+@%", r))
	}
	if plain {
		return w
	}
	return "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
}
