package ctld

import (
	"errors"
	"log/slog"
	"time"

	"gbatch/ctld/rest"
	"gbatch/internal/conf"
	"gbatch/internal/logfile"
	"gbatch/internal/model"
	"gbatch/internal/userdb"
)

// Peer is one controller of the cluster.
type Peer struct {
	Name string
	Addr string // host:port of its one TLS port
}

// Options configure one controller. Settings that change decisions are not here: they are in the replicated
// configuration.
type Options struct {
	Name   string     // name of this controller, one of Peers
	Peers  []Peer     // all controllers
	People *userdb.DB // who users are; nil: this host's database

	Dir string // raft log and snapshots
	PKI string // directory with ca.crt and this controller's certificate

	Socket  string      // path of the local socket; "": none
	HTTP    rest.Config // what is served over HTTP; the zero value: nothing
	DbdAddr string      // address of gdbd; "": no accounting records are shipped
	DbdCopy string      // address of its copy; "": there is none

	// Load reads the configuration from its files, for the first start and for reconfigure.
	Load func() (*conf.Config, []conf.Problem)

	UID        uint32 // the user who is an operator, besides root
	Cluster    string // ClusterName: it ends if its state is another cluster's; "": of any
	ConfigPath string // the file that says so

	Version string
	Paths   []model.KV // local settings, for gcontrol show config
	Logger  *slog.Logger
	Log     *logfile.Log // where Logger writes; nil: its level and its file stay

	// Broken is told of damage of the raft log that is found while the controller runs; see store.Options.
	Broken func(error)

	HeartbeatTimeout time.Duration // of raft; 0: the store's default
	ElectionTimeout  time.Duration

	SampleEvery time.Duration // from one sample for the history to the next; 0: a minute
}

// Limits and paces of a controller.
const (
	cyclePace      = 8 * time.Millisecond // from one planning pass to the next
	dispatchPace   = 4 * time.Millisecond // from one round of orders to the next
	clockPace      = 100 * time.Millisecond
	waitPace       = 10 * time.Millisecond // between two checks of a WaitRequest
	proposeTimeout = 20 * time.Second
	maxWaiters     = 2048
	maxNodes       = 16384
	maxPeerConns   = 64 // of one daemon, by role and name: it needs two, and three while one is replaced
	maxScriptBytes = 64 << 20
	maxEnvBytes    = 64 << 20
	outboxBatch    = 1000    // records in one Put
	outboxBytes    = 8 << 20 // closes a Put, as far as it is known
	// records wait that long for others: start and end of a short job become one record
	outboxPace     = 100 * time.Millisecond
	outboxRetryMin = 200 * time.Millisecond
	outboxRetryMax = 2 * time.Second
	putPatience    = 5 * time.Second // of a Put; then gdbd counts as away
	reportQueue    = 1024            // messages from nodes that wait for the log
	reportBatch    = 4096            // reports that go into the log together
	dialTimeout    = 3 * time.Second
)

func (o *Options) check() error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Load == nil {
		return errors.New("ctld: Options.Load is missing")
	}
	for _, p := range o.Peers {
		if p.Name == o.Name {
			return nil
		}
	}
	return errors.New("this controller, '" + o.Name +
		"', is not among the configured ones (SlurmctldHost=NAME(ADDRESS)); give its name with -N")
}
