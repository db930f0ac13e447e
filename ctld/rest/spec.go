package rest

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"gbatch/internal/acctmgr"
	"gbatch/internal/slurmjson"
	"gbatch/internal/version"
)

// spec.go is the OpenAPI specification of exactly what is served: its paths are the table of operations, its objects
// the tables that answers are written from.

// specification serves it.
func (s *Server) specification(w *answer, yaml bool) {
	w.Header().Set("Content-Type", map[bool]string{true: mimeYAML, false: mimeJSON}[yaml])
	w.WriteHeader(http.StatusOK)
	text := served()
	if yaml {
		text = servedYAML()
	}
	_, _ = w.Write(text) // who has gone needs no answer
}

var served = sync.OnceValue(func() []byte {
	text, err := json.Marshal(specified())
	if err != nil {
		return []byte("{}") // it is made of maps and texts
	}
	return text
})

var servedYAML = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	_, _ = slurmjson.YAML(&out).Write(served()) // a buffer takes everything
	return out.Bytes()
})

type doc = map[string]any

// lists are the objects in answers' lists, by the member that has them.
func lists(ver string) doc {
	return doc{
		"jobs": slurmjson.Schema(jobFields, ver), "nodes": slurmjson.Schema(nodeFields, ver),
		"partitions":   slurmjson.Schema(partitionFields, ver),
		"reservations": slurmjson.Schema(reservationFields, ver), "licenses": slurmjson.Schema(licenseFields, ver),
		"pings": slurmjson.Schema(pingFields, ver), "records": slurmjson.Schema(recordFields, ver),
		"accounts": acctmgr.Schema("accounts", ver), "users": acctmgr.Schema("users", ver),
		"associations": acctmgr.Schema("associations", ver), "qos": acctmgr.Schema("qos", ver),
		"tres": acctmgr.Schema("tres", ver), "clusters": acctmgr.Schema("clusters", ver),
		"shares": slurmjson.Schema(shareFields, ver), "statistics": slurmjson.Schema(statisticFields, ver),
	}
}

// members are the members of answers, by their schema: NAME is a list of that kind of object, NAME:KIND of another.
var members = map[string][]string{
	"openapi_ping_array_resp": {"pings"}, "openapi_diag_resp": {"=statistics"},
	"openapi_licenses_resp": {"licenses", "~last_update"}, "openapi_shares_resp": {"@shares"},
	"openapi_job_info_resp":       {"jobs", "~last_backfill", "~last_update"},
	"openapi_nodes_resp":          {"nodes", "~last_update"},
	"openapi_partition_resp":      {"partitions", "~last_update"},
	"openapi_reservation_resp":    {"reservations", "~last_update"},
	"openapi_job_submit_response": {"#job_id", "$step_id", "$job_submit_user_msg"},
	"openapi_job_post_response":   {"?results"}, "openapi_kill_job_resp": {"?status"},
	"openapi_kill_jobs_resp":       {"?status"},
	"openapi_reservation_mod_resp": {"?reservations"}, "openapi_resource_layout_resp": {"?nodes"},
	"openapi_slurmdbd_jobs_resp": {"jobs:records"}, "openapi_accounts_resp": {"accounts"},
	"openapi_users_resp":  {"users"},
	"openapi_assocs_resp": {"associations"}, "openapi_slurmdbd_qos_resp": {"qos"}, "openapi_tres_resp": {"TRES:tres"},
	"openapi_clusters_resp": {"clusters"}, "openapi_wckey_resp": {"wckeys"}, "openapi_instances_resp": {"?instances"},
	"openapi_slurmdbd_config_resp": {"clusters", "tres", "accounts", "users", "qos", "associations", "wckeys",
		"?instances"},
	"openapi_slurmdbd_ping_resp": {"?pings"}, "openapi_slurmdbd_stats_resp": {"=any"},
	"openapi_accounts_removed_resp": {"*removed_accounts"}, "openapi_assocs_removed_resp": {"*removed_associations"},
	"openapi_slurmdbd_qos_removed_resp":  {"*removed_qos"},
	"openapi_job_alloc_resp":             {"#job_id", "$job_submit_user_msg"},
	"openapi_job_modify_resp":            {"*results"},
	"openapi_clusters_removed_resp":      {"*deleted_clusters"},
	"openapi_wckey_removed_resp":         {"*deleted_wckeys"},
	"openapi_hostnames_req_resp":         {"*hostnames"},
	"openapi_hostlist_req_resp":          {"$hostlist"},
	"openapi_accounts_add_cond_resp_str": {"$added_accounts"}, "openapi_users_add_cond_resp_str": {"$added_users"},
}

func specified() doc {
	paths, schemas := doc{}, doc{}
	ref := func(name string) doc { return doc{"$ref": "#/components/schemas/" + name} }
	list := func(of doc) doc { return doc{"type": "array", "items": of} }
	content := func(name string) doc {
		return doc{mimeJSON: doc{"schema": ref(name)}, mimeYAML: doc{"schema": ref(name)}}
	}
	for _, ver := range versions {
		prefix := ver + "_"
		for name, schema := range lists(ver) {
			schemas[prefix+name] = schema
		}
		for name, has := range members {
			props := doc{"meta": doc{"type": "object"}, "errors": list(ref("error")), "warnings": list(ref("warning"))}
			for _, m := range has {
				switch m[0] {
				case '~':
					props[m[1:]] = slurmjson.NumberSchema("integer")
				case '#':
					props[m[1:]] = doc{"type": "integer"}
				case '$':
					props[m[1:]] = doc{"type": "string"}
				case '*':
					props[m[1:]] = list(doc{"type": "string"})
				case '?':
					props[m[1:]] = list(doc{"type": "object"})
				case '@':
					props["shares"] = doc{"type": "object", "properties": doc{"shares": list(ref(prefix + "shares")),
						"total_shares": doc{"type": "integer"}}}
				case '=':
					props["statistics"] = doc{"type": "object"}
					if m == "=statistics" {
						props["statistics"] = ref(prefix + "statistics")
					}
				default:
					member, kind, other := strings.Cut(m, ":")
					if !other {
						kind = member
					}
					props[member] = list(ref(prefix + kind))
				}
			}
			schemas[prefix+name] = doc{"type": "object", "properties": props}
		}
		schemas[prefix+"openapi_resp"] = doc{"type": "object", "properties": doc{"meta": doc{"type": "object"},
			"errors": list(ref("error")), "warnings": list(ref("warning"))}}
		all := operations()
		for i := range all {
			o := &all[i]
			if !o.is(ver) {
				continue
			}
			var params []doc
			if i := strings.IndexByte(o.Path, '{'); i >= 0 {
				params = append(params, doc{"name": strings.Trim(o.Path[i:], "{}/"), "in": "path", "required": true,
					"schema": doc{"type": "string"}})
			}
			for _, p := range o.names() {
				params = append(params, doc{"name": p, "in": "query", "schema": doc{"type": "string"}})
			}
			answer := doc{"description": o.About, "content": content(prefix + o.Answer)}
			one := doc{"operationId": o.id(ver), "summary": o.About, "parameters": params,
				"responses": doc{"200": answer, "default": answer}}
			if o.Body != "" {
				one["requestBody"] = doc{"required": true,
					"content": doc{mimeJSON: doc{"schema": doc{"type": "object"}},
						mimeYAML: doc{"schema": doc{"type": "object"}}}}
			}
			at, _ := paths[o.in(ver)].(doc)
			if at == nil {
				at = doc{}
				paths[o.in(ver)] = at
			}
			at[strings.ToLower(o.Method)] = one
		}
	}
	text, number := doc{"type": "string"}, doc{"type": "integer"}
	schemas["error"] = doc{"type": "object", "properties": doc{"description": text, "error_number": number,
		"error": text, "source": text}}
	schemas["warning"] = doc{"type": "object", "properties": doc{"description": text, "source": text}}
	return doc{"openapi": "3.0.3",
		"info": doc{"title": "Slurm REST API", "version": "Slurm-" + version.Slurm,
			"description": "What this gctld serves. Slurm's own specification has the same names; see gbatch-rest(7)."},
		"paths": paths, "security": []doc{{"user": []string{}, "token": []string{}}, {"bearerAuth": []string{}}},
		"components": doc{"schemas": schemas, "securitySchemes": doc{
			"user":       doc{"type": "apiKey", "name": "X-SLURM-USER-NAME", "in": "header"},
			"token":      doc{"type": "apiKey", "name": "X-SLURM-USER-TOKEN", "in": "header"},
			"bearerAuth": doc{"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}}},
	}
}
