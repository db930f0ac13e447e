package facade

import (
	"net/http"
	"slices"

	"gbatch/internal/clustertext"
)

// route is a path; {id} or {kind} in it stands for what the request names.
type route struct {
	method, path string
	about        string
	status       int
	run          func(q *request, id string) (any, error) // nil: another room serves it
	answer       any                                      // a value of the type that run gives; nil: any object
	body         any                                      // likewise of what clients send; nil: nothing
	query        [][2]string                              // parameters, and what they are

	// The example: what stands for the path's name, a query, a body, and the answer to it.
	name, asks, sends, gets string
}

// Open are paths that nobody needs a token for.
func Open() []string { return []string{Prefix + "/openapi", Prefix + "/openapi.json"} }

// events describes the answer of a stream.
type events struct{}

// Examples that several paths have.
const (
	exampleTask = `{"task_id":"task-1","status":"pending","priority":"high","gpu_count":2,"allocated_gpus":[],` +
		`"created_at":"2026-05-01T12:00:00Z","started_at":null,"finished_at":null,"name":"train","user":"ann","nodes":[],` +
		`"exit_code":null,"error":"Priority","position":3,"expected_start":"2026-05-01T13:00:00Z",` +
		`"likely_start_earliest":null,"likely_start_latest":null}`
	examplePlace = `{"task_id":"task-1","name":"train","user":"ann","position":1,"rank":0,"score":1000000,` +
		`"partitions":["main"]}`
	exampleQueue = `{"scheduler_running":true,"user_queued_count":1,"device_groups":{"auto":{"count":1,"experiments":[` +
		`{"id":1,"name":"train","user":"ann","status":"queued","queued_at":"2026-05-01T12:00:00Z"}]}},` +
		`"total_capacity":8,"allocated_capacity":0,"available_capacity":8,"utilization":0,"queued_jobs":1,` +
		`"running_jobs":0,"queue_stats":{"normal":{"pending_jobs":1,"current_usage":0,"max_capacity":null,` +
		`"guaranteed_capacity":0}}}`
)

func routes() []route {
	const ok = http.StatusOK
	list := [][2]string{{"status", "pending, running, success or failed"}, {"user", "a user's name or number"},
		{"limit", "at most so many, 1 to 10000"}}
	stream := [][2]string{{"since", "an event's id: what has happened after it comes first; 0: all that is known"},
		{"user", "whose job it is, or who did it"}, {"job", "numbers, with commas between"}, {"account", "names"},
		{"partition", "names"}, {"kind", "kinds, such as task_finished, or what they are of, such as job"}}
	return []route{
		{method: "GET", path: "/tasks", about: "lists tasks", status: ok, run: (*request).tasks, answer: tasksReply{},
			query: list, asks: "status=pending&limit=10", gets: `{"tasks":[` + exampleTask + `],"total":1}`},
		{method: "POST", path: "/tasks", about: "submits a task", status: http.StatusCreated, run: (*request).submit,
			answer: submitted{}, body: submission{},
			sends: `{"priority":"high","gpu_count":2,"command":"python train.py --epochs 100","name":"train"}`,
			gets:  `{"task_id":"task-1","status":"pending","created_at":"2026-05-01T12:00:00Z"}`},
		{method: "GET", path: "/tasks/{id}", about: "one task", status: ok, run: (*request).task, answer: &Task{},
			name: "task-1", gets: exampleTask},
		{method: "GET", path: "/queue/position", about: "the first tasks of the queue, and how many wait for their turn",
			status: ok, run: (*request).positions, answer: placesReply{}, query: positionQuery, asks: "limit=10",
			gets: `{"tasks":[` + examplePlace + `],"total":1}`},
		{method: "GET", path: "/queue/position/{id}", about: "the place of a task in each of its queues", status: ok,
			run: (*request).position, answer: placeReply{}, name: "task-1",
			gets: `{"task_id":"task-1","status":"pending","position":1,"rank":0,"score":1000000,"queues":[` +
				`{"partition":"main","position":1,"ahead":0,"queued":1}],"reason":"it is the next one",` +
				`"expected_start":null}`},
		{method: "POST", path: "/experiments/{id}/queue", about: "puts a held job into the queue", status: ok,
			run: (*request).enqueue, answer: enqueued{}, name: "1",
			gets: `{"success":true,"message":"实验已加入队列","experiment":{"id":1,"status":"queued"}}`},
		{method: "DELETE", path: "/tasks/{id}", about: "cancels a task", status: ok, run: (*request).cancel,
			answer: cancelled{}, name: "task-1", gets: `{"success":true,"task_id":"task-1","status":"failed"}`},
		{method: "GET", path: "/gpus", about: "GPUs: idle, busy or offline", status: ok, run: (*request).gpus,
			answer: gpusReply{}, query: [][2]string{{"node", "names, with commas between"}}, asks: "node=n1",
			gets: `{"gpus":[{"id":"GPU-0","node":"n1","index":0,"type":"a100","product":"NVIDIA A100-SXM4-80GB",` +
				`"status":"busy",` +
				`"task_id":"task-1","task_ids":["task-1"],"utilization":97,"memory_used_mb":40000,` +
				`"memory_free_mb":41920,"memory_total_mb":81920,"temperature":60}],` +
				`"total":1}`},
		{method: "GET", path: "/quota", about: "GPUs of tasks of high (online) and low (batch) priority", status: ok,
			run: (*request).quota, answer: quotaReply{}, gets: `{"total_gpus":10,"online":{"quota":0.7,"limit":7,"used":2,` +
				`"available":5},"batch":{"quota":0.3,"limit":3,"used":0,"available":3}}`},
		{method: "GET", path: "/queue-status", about: "the queue by GPUs, QOS and capacity", status: ok,
			run: (*request).queue, answer: queueReply{}, gets: exampleQueue},
		{method: "GET", path: "/experiments/queue-status", about: "the same as /queue-status", status: ok,
			run: (*request).queue, answer: queueReply{}, gets: exampleQueue},
		{method: "GET", path: "/pools", about: "partitions as pools of GPUs", status: ok, run: (*request).pools,
			answer: poolsReply{}, gets: `{"pools":[{"id":"main","name":"main","type":"gpu","gpu_types":["a100"],` +
				`"total_capacity":8,"allocated_capacity":2,"reserved_capacity":0,"available_capacity":6,"utilization":0.25,` +
				`"resource_count":2,"tenant_quotas":{"physics":4}}],"total":1}`},
		{method: "GET", path: "/events", about: "a stream of what happens (server-sent events)", status: ok,
			answer: events{}, query: stream, asks: "since=0",
			gets: `data: {"id":"120.3","index":120,"time":"2026-05-01T12:00:00.123Z","kind":"task_finished","what":"job",` +
				`"name":"12","job":12,"state":"COMPLETED","exit_code":0}` + "\nid: 120.3\n\n"},
		{method: "GET", path: "/history/{kind}",
			about:  "what was measured of cluster, partition, account, qos, node, gpu or job",
			status: ok, run: (*request).history, query: [][2]string{{"name", "names, with commas between"},
				{"job", "for the history of gpu"}, {"start", "a time"}, {"end", "a time"}, {"step", "seconds"}},
			name: "cluster", asks: "step=60", gets: `{"kind":"cluster","series":[{"name":"cluster","step":60,` +
				`"values":{"gpus_used":[2]},"timestamps":["2026-05-01T12:00:00Z"]}],"more":false}`},
		{method: "GET", path: "/balance", about: "the money of accounts", status: ok, run: (*request).balances,
			answer: listOf("balances", clustertext.BalanceJSON(), nil), query: moneyQuery[:1]},
		{method: "GET", path: "/usage",
			about:  "what runs cost that began in a time and have ended, by account and resource",
			status: ok, run: (*request).usage, answer: listOf("usage", clustertext.CostJSON(), besideUsage()),
			query: slices.Concat(moneyQuery, usageQuery), asks: "start=2026-05-01T00:00:00Z"},
		{method: "GET", path: "/invoices", about: "invoices that were made, or drafts", status: ok,
			run: (*request).invoices, answer: listOf("invoices", clustertext.InvoiceJSON(), nil),
			query: slices.Concat(moneyQuery, invoiceQuery), asks: "draft=true"},
		{method: "GET", path: "/openapi", about: "this specification; it needs no token", status: ok,
			run: (*request).openapi},
		{method: "GET", path: "/openapi.json", about: "the same", status: ok, run: (*request).openapi},
	}
}
