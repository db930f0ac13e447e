package conf

import (
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/walltime"
)

// certs.go is the keys about certificates.

// Bounds of CertificateLifetime, seconds. A life of seconds is for tests of renewal.
const (
	minCertLifeS = 6
	maxCertLifeS = 20 * 365 * 24 * 3600
)

// certificateLifetime is the life of certificates that controllers issue, written like a time limit.
func certificateLifetime() setting {
	return setting{name: "CertificateLifetime", effect: AtOnce,
		read: func(c *Config, v string) (f fault) {
			if c.CertificateLifetimeS, f = readDuration(v); f.bad() {
				return f
			}
			if c.CertificateLifetimeS < minCertLifeS || c.CertificateLifetimeS > maxCertLifeS {
				return fault{shown(v) + " is not between 6 seconds and 20 years", "30-00:00:00"}
			}
			return fault{}
		},
		show: func(c *Config) string { return walltime.Elapsed(c.CertificateLifetimeS) }}
}

// loginHosts is the names of the hosts that may pass users' requests on.
func loginHosts() setting {
	return setting{name: "LoginHosts", effect: AtOnce,
		read: func(c *Config, v string) fault {
			names, err := hostlist.Expand(v)
			if err != nil {
				return fault{shown(v) + ": " + err.Error(), "login[1-2]"}
			}
			c.LoginHosts = names
			return fault{}
		},
		show: func(c *Config) string { return orNull(strings.Join(c.LoginHosts, ",")) }}
}
