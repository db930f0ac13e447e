package conf

import (
	"cmp"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/walltime"
)

// certs.go is the keys about certificates, HTTP and tokens: who may speak with the cluster from outside.

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

// HTTP is what gctld serves over HTTP. Each controller reads it from its own files when it starts.
type HTTP struct {
	Listen string // HttpListen as written; see HTTPAddr
	TLS    string // auto, yes or no
	Cert   string // file of the site's certificate; "": the cluster's own
	Key    string
	Path   string // below which a proxy has it: "" or /some/path

	JWTKey   string // file of the key that tokens are signed with; "": jwt_hs256.key in PKIDir
	JWKS     string // file of public keys of an identity provider; "": none
	JWTClaim string // the claim of its tokens that has the user's name; "": sun or username
	NoTokens bool   // only administrators make tokens

	JWTAudience string // what its tokens must be meant for; "": anything
	JWTIssuer   string // who must have made them; "": anybody with such a key

	Metrics        string   // MetricsType
	MetricsUsers   []string // who may read them; empty: everybody
	MetricsPrivate bool     // whatever PrivateData says
	MetricsSeries  int      // users, and accounts, that have series of their own
	MetricsJobs    int      // jobs that have
}

// DefaultHTTPPort is slurmrestd's.
const DefaultHTTPPort = "6820"

// HTTPAddr gives the address on which a controller serves HTTP; "": it doesn't. addr is the one of its TLS port.
func (h *HTTP) HTTPAddr(name, addr string) string {
	own, all := "", ""
	for item := range strings.SplitSeq(h.Listen, ",") {
		if of, at, named := strings.Cut(item, "="); named && of == name {
			own = at
		} else if !named {
			all = item
		}
	}
	at := cmp.Or(own, all)
	host, _, err := net.SplitHostPort(addr)
	switch {
	case strings.EqualFold(at, "none") || strings.EqualFold(at, "off") || err != nil:
		return ""
	case at == "":
		return net.JoinHostPort(host, DefaultHTTPPort)
	case strings.Contains(at, ":"):
		return at
	}
	return net.JoinHostPort(host, at)
}

// readListen checks HttpListen: NONE, a port, HOST:PORT, or a list of NAME=PORT or NAME=HOST:PORT.
func readListen(v string) fault {
	for item := range strings.SplitSeq(v, ",") {
		at := item
		if name, rest, named := strings.Cut(item, "="); named && name != "" {
			at = rest
		}
		if strings.EqualFold(at, "none") || strings.EqualFold(at, "off") {
			continue
		}
		port := at
		if strings.Contains(at, ":") {
			var err error
			if _, port, err = net.SplitHostPort(at); err != nil {
				return fault{shown(item) + " is no address", DefaultHTTPPort}
			}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n > 65535 {
			return fault{shown(item) + " is neither NONE, nor a port, nor HOST:PORT; before it may stand CONTROLLER=",
				DefaultHTTPPort}
		}
	}
	return fault{}
}

func httpSettings() []setting {
	return []setting{
		{name: "HttpListen", effect: RestartCtld,
			read: func(c *Config, v string) fault {
				c.HTTP.Listen = v
				return readListen(v)
			},
			show: func(c *Config) string { return cmp.Or(c.HTTP.Listen, DefaultHTTPPort) }},
		word("HttpTLS", RestartCtld, func(c *Config) *string { return &c.HTTP.TLS }, "auto", "yes", "no"),
		absPath("HttpCertificate", RestartCtld, func(c *Config) *string { return &c.HTTP.Cert }),
		absPath("HttpKey", RestartCtld, func(c *Config) *string { return &c.HTTP.Key }),
		{name: "HttpPath", effect: RestartCtld,
			read: func(c *Config, v string) fault {
				c.HTTP.Path = strings.TrimRight(v, "/")
				if v != "" && (!strings.HasPrefix(v, "/") || path.Clean(v) != strings.TrimRight(v, "/") && v != "/") {
					return fault{shown(v) + " is no path of a URL", "/gbatch"}
				}
				return fault{}
			},
			show: func(c *Config) string { return orNull(c.HTTP.Path) }},
		{name: "AuthAltTypes", effect: RestartCtld, read: func(_ *Config, v string) fault {
			_, f := readWord(v, []string{"auth/jwt"})
			return f
		}, show: func(*Config) string { return "auth/jwt" }},
		{name: "AuthAltParameters", effect: RestartCtld, read: readAuthAlt,
			show: func(c *Config) string { return orNull(c.HTTP.authAlt()) }},
		word("MetricsType", RestartCtld, func(c *Config) *string { return &c.HTTP.Metrics }, "metrics/openmetrics",
			"metrics/none"),
		list("MetricsAuthUsers", RestartCtld, func(c *Config) *[]string { return &c.HTTP.MetricsUsers }),
		{name: "MetricsParameters", effect: RestartCtld, read: readMetrics,
			show: func(c *Config) string {
				var out []string
				if c.HTTP.MetricsPrivate {
					out = append(out, ignorePrivate)
				}
				if c.HTTP.MetricsSeries != defaultSeries {
					out = append(out, userSeries+"="+strconv.Itoa(c.HTTP.MetricsSeries))
				}
				if c.HTTP.MetricsJobs != 0 {
					out = append(out, jobSeries+"="+strconv.Itoa(c.HTTP.MetricsJobs))
				}
				return orNull(strings.Join(out, ","))
			}},
	}
}

// Words of MetricsParameters.
const (
	ignorePrivate = "ignore_private_data"
	userSeries    = "user_series"
	jobSeries     = "job_series"

	defaultSeries = 1000
	maxSeries     = 100_000
)

// readMetrics reads MetricsParameters.
func readMetrics(c *Config, v string) fault {
	for _, item := range splitList(v) {
		key, value, given := strings.Cut(item, "=")
		switch {
		case strings.EqualFold(key, ignorePrivate) && !given:
			c.HTTP.MetricsPrivate = true
		case (strings.EqualFold(key, userSeries) || strings.EqualFold(key, jobSeries)) && given:
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 || n > maxSeries {
				return fault{shown(item) + " is no number from 0 to " + strconv.Itoa(maxSeries), key + "=" +
					strconv.Itoa(defaultSeries)}
			}
			if strings.EqualFold(key, jobSeries) {
				c.HTTP.MetricsJobs = n
			} else {
				c.HTTP.MetricsSeries = n
			}
		default:
			return fault{shown(item) + " is none of " + ignorePrivate + ", " + userSeries + "=NUMBER, " + jobSeries +
				"=NUMBER", ignorePrivate}
		}
	}
	return fault{}
}

// readAuthAlt reads AuthAltParameters.
func readAuthAlt(c *Config, v string) fault {
	h := &c.HTTP
	given := splitList(v)
	named := func(key string) bool {
		return slices.ContainsFunc(given, func(item string) bool {
			have, _, _ := strings.Cut(item, "=")
			return strings.EqualFold(have, key)
		})
	}
	// With an identity provider and no key for own tokens only administrators make those, as with disable_token_creation.
	h.NoTokens = named("jwks") && !named("jwt_key")
	for _, item := range given {
		key, value, _ := strings.Cut(item, "=")
		switch strings.ToLower(key) {
		case "jwt_key":
			h.JWTKey = value
		case "jwks":
			h.JWKS = value
		case "userclaimfield":
			h.JWTClaim = value
			continue
		case "jwt_audience":
			h.JWTAudience = value
			continue
		case "jwt_issuer":
			h.JWTIssuer = value
			continue
		case "disable_token_creation":
			h.NoTokens = true
			continue
		default:
			return fault{shown(item) + " is none of jwt_key=FILE, jwks=FILE, userclaimfield=NAME, jwt_audience=TEXT, " +
				"jwt_issuer=TEXT, disable_token_creation", "jwt_key=/etc/gbatch/jwt_hs256.key"}
		}
		if !strings.HasPrefix(value, "/") {
			return fault{shown(item) + " is not an absolute path", key + "=/" + value}
		}
	}
	return fault{}
}

func (h *HTTP) authAlt() string {
	var out []string
	for _, kv := range [][2]string{{"jwt_key=", h.JWTKey}, {"jwks=", h.JWKS}, {"userclaimfield=", h.JWTClaim},
		{"jwt_audience=", h.JWTAudience}, {"jwt_issuer=", h.JWTIssuer}} {
		if kv[1] != "" {
			out = append(out, kv[0]+kv[1])
		}
	}
	if h.NoTokens {
		out = append(out, "disable_token_creation")
	}
	return strings.Join(out, ",")
}

// NodeMetricsAddr is the address of a node's metrics, host:port; "": they are not served.
func NodeMetricsAddr(c *Config) string {
	at := c.NodeMetricsListen
	switch {
	case at == "", strings.EqualFold(at, "none"), strings.EqualFold(at, "off"):
		return ""
	case strings.Contains(at, ":"):
		return at
	}
	return ":" + at
}
