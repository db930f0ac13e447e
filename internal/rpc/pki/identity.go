package pki

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Roles of a certificate.
const (
	RoleCtld  = "ctld"  // controller
	RoleNode  = "node"  // compute node
	RoleLogin = "login" // login host: a node daemon without resources
	RoleDBD   = "dbd"   // accounting daemon
)

// Roles lists every role.
func Roles() []string { return []string{RoleCtld, RoleNode, RoleLogin, RoleDBD} }

const (
	scheme     = "gbatch"
	roleSuffix = ".gbatch" // of the DNS name that stands for a role
	maxName    = 64        // bytes of a cluster's or daemon's name; the upper bound of X.520 for a common name
)

// identity is the identity in a certificate: a daemon's, or with empty role and name an authority's.
type identity struct {
	cluster, role, name string
}

func (id identity) String() string {
	if id.role == "" {
		return fmt.Sprintf("the authority of cluster %q", id.cluster)
	}
	return fmt.Sprintf("%s %s of cluster %q", id.role, id.name, id.cluster)
}

func (id identity) uri() *url.URL {
	u := &url.URL{Scheme: scheme, Host: id.cluster}
	if id.role != "" {
		u.Path = "/" + id.role + "/" + id.name
	}
	return u
}

// identityOf reads the one gbatch URI of a certificate.
func identityOf(cert *x509.Certificate) (identity, error) {
	var found []identity
	for _, u := range cert.URIs {
		if u.Scheme != scheme {
			continue
		}
		id := identity{cluster: u.Host}
		if u.Path != "" {
			var ok bool
			id.role, id.name, ok = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
			if !ok {
				return identity{}, fmt.Errorf("it says %q where gbatch://CLUSTER/ROLE/NAME is due", u)
			}
			if err := checkRole(id.role); err != nil {
				return identity{}, err
			}
			if err := checkName("name", id.name); err != nil {
				return identity{}, err
			}
		}
		if err := checkName("cluster", id.cluster); err != nil {
			return identity{}, err
		}
		if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return identity{}, fmt.Errorf("it says %q where gbatch://CLUSTER/ROLE/NAME is due", u)
		}
		found = append(found, id)
	}
	if len(found) != 1 {
		return identity{}, fmt.Errorf("it has %d gbatch:// names, not 1: it is no gbatch certificate", len(found))
	}
	if (found[0].role == "") != cert.IsCA {
		return identity{}, fmt.Errorf("it says %q, which doesn't fit what it may be used for", found[0].uri())
	}
	return found[0], nil
}

func checkRole(role string) error {
	if !slices.Contains(Roles(), role) {
		return fmt.Errorf("role %q: the roles are %s", role, strings.Join(Roles(), ", "))
	}
	return nil
}

// checkName accepts names that are valid in a host name, a URI and a file name.
func checkName(what, s string) error {
	if s == "" || len(s) > maxName {
		return fmt.Errorf("%s %q: must have 1 to %d characters", what, s, maxName)
	}
	for i, r := range s {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || i > 0 &&
			(r == '-' || r == '_' || r == '.')
		if !ok {
			return fmt.Errorf("%s %q: only letters, digits, '-', '_' and '.' are allowed, and a letter or digit first", what, s)
		}
	}
	return nil
}
