package rest

import (
	"net/http"
	"slices"

	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

const (
	get  = http.MethodGet
	post = http.MethodPost
	del  = http.MethodDelete
)

// operations are all that is served. Names and schemas are Slurm's; Params are what is looked at.
func operations() []op {
	all := slices.Concat(ctldOperations(), dbOperations(), moreOperations())
	for i := range all {
		if o := &all[i]; o.Blank == nil {
			o.Blank = blank()
		}
	}
	return all
}

func ctldOperations() []op {
	nodes, parts := blank("nodes", "last_update"), blank("partitions", "last_update")
	resvs := blank("reservations", "last_update")
	listed := []string{"update_time", "~flags"} // everything is listed, with all that it has
	jobs := append([]string{"account", "job_id", "job_ids", "job_name", "node", "partition", "qos", "reservation",
		"state", "job_state", "users", "user", "user_name"}, listed...)
	return []op{
		{Method: get, Path: "/slurm/V/ping/", Name: "slurm_V_get_ping", Answer: "openapi_ping_array_resp", Run: getPing,
			Blank: blank("pings"), About: "which controllers answer, and which leads"},
		{Method: get, Path: "/slurm/V/diag/", Name: "slurm_V_get_diag", Answer: "openapi_diag_resp", Run: getDiag,
			Blank: blankDiag, About: "the leader's statistics"},
		{Method: get, Path: "/slurm/V/licenses/", Name: "slurm_V_get_licenses", Answer: "openapi_licenses_resp",
			Run: listLicenses, Blank: blank("licenses", "last_update"), About: "licenses"},
		{Method: get, Path: "/slurm/V/shares", Name: "slurm_V_get_shares", Answer: "openapi_shares_resp", Run: listShares,
			Params: []string{"accounts", "users"}, Blank: blank("@shares"), About: "shares and usage"},
		{Method: get, Asks: proto.KindReconfigure, Path: "/slurm/V/reconfigure/",
			Name: "slurm_V_get_reconfigure", Answer: "openapi_resp",
			Run: reconfigure, About: "the configuration is read anew"},

		{Method: post, Asks: proto.KindSubmit, Path: "/slurm/V/job/submit",
			Name: "slurm_V_post_job_submit", Body: "job_submit_req",
			Answer: "openapi_job_submit_response", Run: submitJob, About: "submits a job"},
		{Method: get, Path: "/slurm/V/jobs/", Name: "slurm_V_get_jobs", Answer: "openapi_job_info_resp", Run: listJobs,
			Params: jobs, Blank: blankJobs, About: "jobs"},
		{Method: del, Asks: proto.KindCancel, Path: "/slurm/V/jobs/", Name: "slurm_V_delete_jobs", Body: "kill_jobs_msg",
			Answer: "openapi_kill_jobs_resp", Run: deleteJobs, Blank: blankKilled, About: "ends or signals jobs"},
		{Method: get, Path: "/slurm/V/jobs/state/", Name: "slurm_V_get_jobs_state", Answer: "openapi_job_info_resp",
			Run: jobsState, Params: []string{"job_id"}, Blank: blankJobs, About: "states of jobs"},
		{Method: get, Path: "/slurm/V/job/{job_id}", Name: "slurm_V_get_job", Answer: "openapi_job_info_resp", Run: getJob,
			Params: listed, Blank: blankJobs, About: "one job"},
		{Method: post, Asks: proto.KindUpdateJob, Path: "/slurm/V/job/{job_id}",
			Name: "slurm_V_post_job", Body: "job_desc_msg",
			Answer: "openapi_job_post_response", Run: updateJob, About: "changes a job"},
		{Method: del, Asks: proto.KindCancel, Path: "/slurm/V/job/{job_id}",
			Name: "slurm_V_delete_job", Answer: "openapi_kill_job_resp",
			Run: deleteJob, Params: []string{"signal", "flags"}, Blank: blankKilled, About: "ends or signals a job"},
		{Method: get, Path: "/slurm/V/resources/{job_id}", Name: "slurm_V_get_resources", Since: "v0.0.44",
			Answer: "openapi_resource_layout_resp", Run: getResources, Blank: blank("nodes"),
			About: "what a job has of its nodes"},

		{Method: get, Path: "/slurm/V/nodes/", Name: "slurm_V_get_nodes", Answer: "openapi_nodes_resp", Run: listNodes,
			Params: listed, Blank: nodes, About: "nodes"},
		{Method: post, Asks: proto.KindUpdateNode, Path: "/slurm/V/nodes/",
			Name: "slurm_V_post_nodes", Body: "update_node_msg", Answer: "openapi_resp",
			Run: postNodes, About: "changes nodes"},
		{Method: get, Path: "/slurm/V/node/{node_name}", Name: "slurm_V_get_node", Answer: "openapi_nodes_resp",
			Run: getNode, Params: listed, Blank: nodes, About: "one node"},
		{Method: post, Asks: proto.KindUpdateNode, Path: "/slurm/V/node/{node_name}",
			Name: "slurm_V_post_node", Body: "update_node_msg",
			Answer: "openapi_resp", Run: postNode, About: "changes a node"},
		{Method: get, Path: "/slurm/V/partitions/", Name: "slurm_V_get_partitions", Answer: "openapi_partition_resp",
			Run: listPartitions, Params: listed, Blank: parts, About: "partitions"},
		{Method: get, Path: "/slurm/V/partition/{partition_name}", Name: "slurm_V_get_partition",
			Answer: "openapi_partition_resp", Run: getPartition, Params: listed, Blank: parts, About: "one partition"},
		{Method: get, Path: "/slurm/V/reservations/", Name: "slurm_V_get_reservations", Answer: "openapi_reservation_resp",
			Run: listReservations, Params: []string{"update_time"}, Blank: resvs, About: "reservations"},
		{Method: post, Asks: proto.KindReserve, Path: "/slurm/V/reservations/",
			Name: "slurm_V_post_reservations", Since: "v0.0.43",
			Body: "reservation_mod_req", Answer: "openapi_reservation_mod_resp", Run: postReservations,
			Blank: blank("reservations"), About: "makes or changes reservations"},
		{Method: post, Asks: proto.KindReserve, Path: "/slurm/V/reservation",
			Name: "slurm_V_post_reservation", Since: "v0.0.43",
			Body: "reservation_desc_msg", Answer: "openapi_reservation_mod_resp", Run: postReservation,
			Blank: blank("reservations"), About: "makes or changes a reservation"},
		{Method: get, Path: "/slurm/V/reservation/{reservation_name}", Name: "slurm_V_get_reservation",
			Answer: "openapi_reservation_resp", Run: getReservation, Params: []string{"update_time"}, Blank: resvs,
			About: "one reservation"},
		{Method: del, Asks: proto.KindReserve, Path: "/slurm/V/reservation/{reservation_name}",
			Name:   "slurm_V_delete_reservation",
			Answer: "openapi_resp", Run: deleteReservation, About: "removes a reservation"},
	}
}

func dbOperations() []op {
	blankAccounts, blankUsers, blankAssocs := blank("accounts"), blank("users"), blank("associations")
	blankQOS, blankGone := blank("qos"), blank("removed_associations")
	assocs := append(slices.Clone(assocNames), onlyDefaults, belowToo, "~Include deleted associations",
		"~Include the raw QOS or delta_qos", "~Exclude limits from parents", "~format")
	goneAssocs := append(slices.Clone(assocs), "~Include usage", "~usage_start", "~usage_end", "~Exclude parent id/name")
	one := []string{"~with_assocs", "~with_coords", "~with_deleted"}
	cluster := []string{"~cluster", "~flags", "~format", "~with_deleted"}
	return []op{
		{Method: get, Path: "/slurmdb/V/ping/", Name: "slurmdb_V_get_ping", Answer: "openapi_slurmdbd_ping_resp",
			Run: dbPing, Blank: blank("pings"), About: "which gdbd answers"},
		{Method: get, Path: "/slurmdb/V/diag/", Name: "slurmdb_V_get_diag", Answer: "openapi_slurmdbd_stats_resp",
			Run: dbDiag, Blank: blank("@statistics"), About: "gdbd's statistics"},
		{Method: get, Path: "/slurmdb/V/config", Name: "slurmdb_V_get_config", Answer: "openapi_slurmdbd_config_resp",
			Run: dbConfig, About: "all accounts, users, associations, QOS and resources"},

		{Method: get, Path: "/slurmdb/V/jobs/", Name: "slurmdb_V_get_jobs", Answer: "openapi_slurmdbd_jobs_resp",
			Run:    dbJobs,
			Params: recordParams(), Blank: blank("jobs"), About: "records of jobs"},
		{Method: get, Path: "/slurmdb/V/job/{job_id}", Name: "slurmdb_V_get_job", Answer: "openapi_slurmdbd_jobs_resp",
			Run: dbJob, Blank: blank("jobs"), About: "one job's record"},

		{Method: get, Path: "/slurmdb/V/accounts/", Name: "slurmdb_V_get_accounts", Answer: "openapi_accounts_resp",
			Run: listAccounts, Params: []string{"account", "name", "description", "~DELETED",
				"~WithAssociations", "~WithCoordinators"}, Blank: blankAccounts, About: "accounts"},
		{Method: post, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/accounts/",
			Name: "slurmdb_V_post_accounts", Body: "openapi_accounts_resp",
			Answer: "openapi_resp", Run: postAccounts, About: "makes or changes accounts"},
		{Method: post, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/accounts_association/",
			Name: "slurmdb_V_post_accounts_association",
			Body: "openapi_accounts_add_cond_resp", Answer: "openapi_accounts_add_cond_resp_str",
			Run:   postAccountsAssociation,
			Blank: blank("#added_accounts"), About: "makes accounts with limits"},
		{Method: get, Path: "/slurmdb/V/account/{account_name}", Name: "slurmdb_V_get_account",
			Answer: "openapi_accounts_resp", Run: getAccount, Params: one, Blank: blankAccounts, About: "one account"},
		{Method: del, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/account/{account_name}",
			Name:   "slurmdb_V_delete_account",
			Answer: "openapi_accounts_removed_resp", Run: deleteAccount, Blank: blank("removed_accounts"),
			About: "removes an account"},

		{Method: get, Path: "/slurmdb/V/users/", Name: "slurmdb_V_get_users", Answer: "openapi_users_resp", Run: listUsers,
			Params: []string{"admin_level", "default_account", "default_wckey", "name", "user", "~with_assocs",
				"~with_coords", "~with_deleted", "~with_wckeys"}, Blank: blankUsers, About: "users"},
		{Method: post, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/users/",
			Name: "slurmdb_V_post_users", Body: "openapi_users_resp",
			Answer: "openapi_resp", Run: postUsers, About: "makes or changes users"},
		{Method: post, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/users_association/",
			Name: "slurmdb_V_post_users_association",
			Body: "openapi_users_add_cond_resp", Answer: "openapi_users_add_cond_resp_str", Run: postUsersAssociation,
			Params: []string{"~update_time", "~flags"}, Blank: blank("#added_users"),
			About: "makes users with associations and limits"},
		{Method: get, Path: "/slurmdb/V/user/{name}", Name: "slurmdb_V_get_user", Answer: "openapi_users_resp",
			Run: getUser, Params: append(one, "~with_wckeys"),
			Blank: blankUsers, About: "one user"},
		{Method: del, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/user/{name}",
			Name: "slurmdb_V_delete_user", Answer: "openapi_resp",
			Run:   deleteUser,
			About: "removes a user"},

		{Method: get, Path: "/slurmdb/V/associations/", Name: "slurmdb_V_get_associations", Answer: "openapi_assocs_resp",
			Run: listAssociations, Params: assocs, Blank: blankAssocs, About: "associations"},
		{Method: post, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/associations/",
			Name: "slurmdb_V_post_associations", Body: "openapi_assocs_resp",
			Answer: "openapi_resp", Run: postAssociations, About: "makes or changes associations"},
		{Method: del, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/associations/", Name: "slurmdb_V_delete_associations",
			Answer: "openapi_assocs_removed_resp", Run: deleteAssociations, Params: goneAssocs, Blank: blankGone,
			About: "removes associations"},
		{Method: get, Path: "/slurmdb/V/association/", Name: "slurmdb_V_get_association", Answer: "openapi_assocs_resp",
			Run: getAssociation, Params: assocs, Blank: blankAssocs, About: "one association"},
		{Method: del, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/association/", Name: "slurmdb_V_delete_association",
			Answer: "openapi_assocs_removed_resp", Run: deleteAssociations, Params: goneAssocs, Blank: blankGone,
			About: "removes one association"},

		{Method: get, Path: "/slurmdb/V/qos/", Name: "slurmdb_V_get_qos", Answer: "openapi_slurmdbd_qos_resp", Run: listQOS,
			Params: []string{"description", "id", "name", "preempt_mode", "~Include deleted QOS", "~format"},
			Blank:  blankQOS, About: "QOS"},
		{Method: post, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/qos/",
			Name: "slurmdb_V_post_qos", Body: "openapi_slurmdbd_qos_resp",
			Answer: "openapi_resp", Run: postQOS, About: "makes or changes QOS"},
		{Method: get, Path: "/slurmdb/V/qos/{qos}", Name: "slurmdb_V_get_single_qos", Answer: "openapi_slurmdbd_qos_resp",
			Run: getQOS, Params: []string{"~with_deleted"}, Blank: blankQOS, About: "one QOS"},
		{Method: del, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/qos/{qos}", Name: "slurmdb_V_delete_single_qos",
			Answer: "openapi_slurmdbd_qos_removed_resp", Run: deleteQOS, Blank: blank("removed_qos"), About: "removes a QOS"},

		{Method: get, Path: "/slurmdb/V/clusters/", Name: "slurmdb_V_get_clusters", Answer: "openapi_clusters_resp",
			Run: listClusters, Params: []string{"~update_time"}, Blank: blank("clusters"), About: "this cluster"},
		{Method: post, Path: "/slurmdb/V/clusters/", Name: "slurmdb_V_post_clusters", Body: "openapi_clusters_resp",
			Answer: "openapi_resp", Run: postClusters, About: "nothing: the cluster is there"},
		{Method: get, Path: "/slurmdb/V/cluster/{cluster_name}", Name: "slurmdb_V_get_cluster",
			Answer: "openapi_clusters_resp", Run: getCluster, Params: cluster, Blank: blank("clusters"),
			About: "one cluster"},
		{Method: get, Path: "/slurmdb/V/tres/", Name: "slurmdb_V_get_tres", Answer: "openapi_tres_resp", Run: listTRES,
			Blank: blank("TRES"), About: "the resources that are counted"},
		{Method: get, Path: "/slurmdb/V/wckeys/", Name: "slurmdb_V_get_wckeys", Answer: "openapi_wckey_resp",
			Run: listWCKeys, Params: []string{"cluster", "id", "name", "only_defaults", "user", "~format", "~with_deleted"},
			Blank: blank("wckeys"), About: "wckeys of users"},
		{Method: get, Path: "/slurmdb/V/wckey/{id}", Name: "slurmdb_V_get_wckey", Answer: "openapi_wckey_resp",
			Run: getWCKey, Blank: blank("wckeys"), About: "one wckey"},
	}
}

// moreOperations are what administrators' programs call, and tools.
func moreOperations() []op {
	removed := blank("deleted_clusters")
	instance := []string{"~cluster", "~extra", "~format", "~instance_id", "~instance_type", "~node_list", "~time_start",
		"~time_end"}
	return []op{
		{Method: get, Path: "/slurmdb/V/instances/", Name: "slurmdb_V_get_instances", Answer: "openapi_instances_resp",
			Run: listInstances, Params: instance, Blank: blank("instances"), About: "none: nodes are no cloud's instances"},
		{Method: get, Path: "/slurmdb/V/instance/", Name: "slurmdb_V_get_instance", Answer: "openapi_instances_resp",
			Run: listInstances, Params: instance, Blank: blank("instances"), About: "none: nodes are no cloud's instances"},
		{Method: post, Asks: proto.KindSubmit, Path: "/slurm/V/job/allocate",
			Name: "slurm_V_post_job_allocate", Body: "job_alloc_req",
			Answer: "openapi_job_alloc_resp", Run: allocateJob,
			About: "submits a job without a script, which holds what it gets"},
		{Method: post, Asks: proto.KindUpdateNode, Path: "/slurm/V/new/node/",
			Name: "slurm_V_post_new_node", Since: "v0.0.44",
			Body: "openapi_create_node_req", Answer: "openapi_resp", Run: postNewNode, About: "makes nodes"},
		{Method: del, Asks: proto.KindUpdateNode, Path: "/slurm/V/node/{node_name}",
			Name: "slurm_V_delete_node", Answer: "openapi_resp",
			Run: deleteNode, About: "removes a node"},
		{Method: post, Asks: proto.KindUpdateJob, Path: "/slurmdb/V/jobs/", Name: "slurmdb_V_post_jobs", Since: "v0.0.44",
			Body: "openapi_job_modify_req", Answer: "openapi_job_modify_resp", Run: postRecords, Blank: blank("results"),
			About: "changes comments of jobs"},
		{Method: post, Asks: proto.KindUpdateJob, Path: "/slurmdb/V/job/{job_id}",
			Name: "slurmdb_V_post_job", Since: "v0.0.44", Body: "job_modify",
			Answer: "openapi_job_modify_resp", Run: postRecord, Blank: blank("results"), About: "changes comments of a job"},
		{Method: post, Asks: proto.KindEditAccounts, Path: configPath,
			Name: "slurmdb_V_post_config", Body: "openapi_slurmdbd_config_resp",
			Answer: "openapi_resp", Run: postConfig, About: "makes or changes accounts, users, associations and QOS"},
		{Method: post, Path: "/slurmdb/V/tres/", Name: "slurmdb_V_post_tres", Body: "openapi_tres_resp",
			Answer: "openapi_resp", Run: postTRES, About: "refused: the configuration says what is counted"},
		{Method: del, Path: "/slurmdb/V/cluster/{cluster_name}", Name: "slurmdb_V_delete_cluster",
			Answer: "openapi_clusters_removed_resp", Run: deleteCluster, Params: []string{"~cluster", "~flags", "~format"},
			Blank: removed, About: "refused for this cluster, and there is no other"},
		{Method: post, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/wckeys/", Name: "slurmdb_V_post_wckeys",
			Body: "openapi_wckey_resp", Answer: "openapi_resp", Run: postWCKeys, About: "gives users wckeys"},
		{Method: del, Asks: proto.KindEditAccounts, Path: "/slurmdb/V/wckey/{id}",
			Name: "slurmdb_V_delete_wckey", Answer: "openapi_wckey_removed_resp", Run: deleteWCKey,
			Blank: blank("deleted_wckeys"), About: "removes a wckey"},
		{Method: post, Path: "/util/V/hostnames", Name: "util_V_post_hostnames", Since: "v0.0.44",
			Body: "openapi_hostlist_req_resp", Answer: "openapi_hostnames_req_resp", Run: postHostnames,
			Blank: blank("hostnames"), About: "the hosts of a list such as n[1-4]"},
		{Method: post, Path: "/util/V/hostlist", Name: "util_V_post_hostlist", Since: "v0.0.44",
			Body: "openapi_hostnames_req_resp", Answer: "openapi_hostlist_req_resp", Run: postHostlist,
			Blank: blank("#hostlist"), About: "the list of hosts"},
	}
}

func blankDiag(_ *request, j *slurmjson.Writer) {
	j.Open("statistics", '{')
	j.Close('}')
}
