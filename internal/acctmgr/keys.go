package acctmgr

// Keys gives the words KEY=VALUE of an entity in full, for completion: account, user, association or qos. Others have
// none.
func Keys(entity string) []string {
	var out []string
	switch {
	case is(entity, 2, "accounts", "acct"):
		out = append(out, "name", "description", "organization", "parent")
	case is(entity, 1, "users"):
		out = append(out, "name", "account", "adminlevel", "defaultaccount", "partition", "wckeys", "defaultwckey", "newname")
	case is(entity, 2, "associations"):
		out = append(out, "account", "user", "partition")
	case is(entity, 1, "qos"):
		out = append(out, "name")
		for _, a := range qosAttrs() {
			out = append(out, a.names[0])
		}
		return out
	case is(entity, 1, "wckeys"):
		return append(out, "name", "user", "id")
	case is(entity, 3, "coordinators"):
		return append(out, "account", "name")
	default:
		return nil
	}
	for _, a := range assocAttrs() {
		out = append(out, a.names[0])
	}
	return out
}
