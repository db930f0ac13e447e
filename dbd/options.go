package dbd

import (
	"errors"
	"log/slog"
	"time"
)

// Options say what an accounting daemon is.
type Options struct {
	Name   string // the name in its certificate, dbd-NAME.crt
	Listen string // host:port of its one TLS port; an empty host is every address, port 0 any
	Dir    string // directory of the database; made if missing, for one gdbd at a time
	PKI    string // directory with ca.crt and this daemon's certificate

	// KeepMonths is how many whole months of finished records to keep beside the present one; 0 keeps all. Unfinished
	// jobs are kept in any case.
	KeepMonths int

	Logger *slog.Logger     // nil: no log
	Now    func() time.Time // nil: time.Now; decides only which months are old
}

// maxKeepMonths is a hundred years; more is a slip of the pen.
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
		return errors.New("gdbd needs an address to listen on; set AccountingStorageHost in gbatch.conf or give --listen HOST:PORT")
	case o.Dir == "":
		return errors.New("gdbd needs a directory for its database; set DbdStateLocation in gbatch.conf or give --dir")
	case o.PKI == "":
		return errors.New("gdbd needs the directory of its certificate; set PKIDir in gbatch.conf or give --pki")
	case o.KeepMonths < 0 || o.KeepMonths > maxKeepMonths:
		return errors.New("the months to keep are a number from 1 to 1200, or 0 to keep all")
	}
	return nil
}
