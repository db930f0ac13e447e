package dbd

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"gbatch/internal/conf"
)

// Options configure an accounting daemon.
type Options struct {
	Name    string // the name in its certificate, dbd-NAME.crt
	Cluster string // of the configuration; "": there is none
	Listen  string // host:port of its one TLS port; an empty host means all addresses, port 0 any port
	Dir     string // directory of the database; made if missing, for one gdbd at a time
	PKI     string // directory with ca.crt and this daemon's certificate

	Controllers []string // host:port of each, which renew the certificate; none: it is not renewed

	// Two gdbds can keep the same records. Other is the address of the other one, host:port; "": there is none. Copy says
	// that this one is the copy, AccountingStorageBackupHost's.
	Other string
	Copy  bool

	// KeepMonths is how many whole months of finished records to keep in addition to the present month; 0 keeps all.
	// Unfinished jobs are kept in any case.
	KeepMonths int

	Logger *slog.Logger     // nil: no log
	Now    func() time.Time // nil: time.Now; used only to decide which months are old
}

// Configure fills in unset options from a configuration. The name is the host's name up to its first dot. If
// AccountingStorageHost is an address or localhost, gdbd listens on that; if it is a name, gdbd listens on all
// addresses, because the name may resolve to something else on its own host (Debian's 127.0.1.1).
func (o *Options) Configure(c *conf.Config) error {
	set := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("asking for this host's name: %w; give gdbd's name with -N", err)
		}
		o.Name, _, _ = strings.Cut(host, ".")
	}
	if c.DbdAddr != "" {
		addr := c.DbdAddr
		if o.Copy = c.DbdCopyAddr != "" && o.isAt(c.DbdCopyAddr) && !o.isAt(c.DbdAddr); o.Copy {
			addr = c.DbdCopyAddr
			o.Other = c.DbdAddr
		} else {
			o.Other = c.DbdCopyAddr
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("the address %s of gdbd: %w", addr, err)
		}
		if net.ParseIP(host) == nil && host != "localhost" {
			host = ""
		}
		set(&o.Listen, net.JoinHostPort(host, port))
	}
	set(&o.Cluster, c.ClusterName)
	set(&o.Dir, c.DbdStateLocation)
	set(&o.PKI, c.PKIDir)
	for _, ctl := range c.Controllers {
		o.Controllers = append(o.Controllers, ctl.Addr)
	}
	return nil
}

// isAt reports whether an address of the configuration is this gdbd's: it was told to listen there, its name is the
// host's, or this machine has the address.
func (o *Options) isAt(addr string) bool {
	if o.Listen != "" {
		return o.Listen == addr
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		own, err := net.InterfaceAddrs()
		return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip)
		})
	}
	first, _, _ := strings.Cut(host, ".")
	return strings.EqualFold(first, o.Name) || strings.EqualFold(host, o.Name)
}

// maxKeepMonths is a hundred years; a larger number is a typing error.
const maxKeepMonths = 1200

func (o *Options) check() error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	switch {
	case o.Name == "":
		return errors.New("gdbd needs its name, the one its certificate was issued for; give it with -N")
	case o.Listen == "":
		return errors.New("gdbd needs an address to listen on; set AccountingStorageHost in gbatch.conf or give --listen " +
			"HOST:PORT")
	case o.Dir == "":
		return errors.New("gdbd needs a directory for its database; set DbdStateLocation in gbatch.conf or give --dir")
	case o.PKI == "":
		return errors.New("gdbd needs the directory of its certificate; set PKIDir in gbatch.conf or give --pki")
	case o.KeepMonths < 0 || o.KeepMonths > maxKeepMonths:
		return fmt.Errorf("%d months to keep: give --keep-months a number from 1 to %d, or 0 to keep all", o.KeepMonths,
			maxKeepMonths)
	}
	return nil
}
