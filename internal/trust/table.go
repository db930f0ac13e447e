package trust

import "gbatch/internal/proto"

// Rows that several kinds have. The columns: stranger, user, coordinator, operator, administrator; login host, node,
// controller, gdbd.
var (
	submits = Row{Refused, Own, Own, Own, Own, Passes, Passes, Passes, Refused} // as oneself
	changes = Row{Refused, Own, Below, All, All, Passes, Passes, Passes, Refused}
	scripts = Row{Refused, Own, Own, All, All, Passes, Passes, Passes, Refused}
	outputs = Row{Refused, Own, Own, Own, All, Passes, Refused, Passes, Refused} // read as the owner, on another node
	reads   = Row{Refused, Sees, Sees, All, All, Passes, Passes, Passes, Refused}
	edits   = Row{Refused, Own, Below, All, All, Passes, Refused, Passes, Refused}
	runs    = Row{Refused, Refused, Refused, All, All, Passes, Refused, Passes, Refused} // the cluster from day to day
	rules   = Row{Refused, Refused, Refused, Refused, All, Passes, Refused, Passes, Refused}
	keys    = Row{Refused, Refused, Refused, Refused, All, Refused, Refused, Passes, Refused} // made on controllers
	carries = Row{Refused, Inner, Inner, Inner, Inner, Inner, Inner, Inner, Refused}
	tokens  = Row{Refused, Own, Own, Own, All, Passes, Refused, Passes, Refused}
	here    = Row{Refused, Own, Own, Own, Own, Refused, Refused, Refused, Refused}

	ofNode   = Row{Node: Session}
	ofLeader = Row{Controller: Session}
	ofCtld   = Row{Controller: Itself}
	ofKeeper = Row{Controller: Itself, Gdbd: Itself}
	daemons  = Row{LoginHost: Itself, Node: Itself, Controller: Itself, Gdbd: Itself}
	anyone   = Row{Itself, Refused, Refused, Refused, Refused, Itself, Itself, Itself, Itself} // over the network
)

// table has a row for each kind of request.
var table = map[uint16]Row{
	proto.KindPing: {Refused, Sees, Sees, All, All, Both, Both, Both, Itself},

	proto.KindSubmit:     submits,
	proto.KindSubmitEach: submits,
	proto.KindCancel:     changes,
	proto.KindSignal:     changes,
	proto.KindUpdateJob:  changes,
	proto.KindStat:       changes,
	proto.KindScript:     scripts,
	proto.KindTail:       outputs,
	proto.KindAttend:     here,
	proto.KindPresent:    submits,

	proto.KindJobs:         reads,
	proto.KindNodes:        reads,
	proto.KindPartitions:   reads,
	proto.KindPools:        reads,
	proto.KindConfig:       reads,
	proto.KindWait:         reads,
	proto.KindAcct:         reads,
	proto.KindReport:       reads,
	proto.KindHistory:      reads,
	proto.KindShares:       reads,
	proto.KindDiag:         reads,
	proto.KindAccounts:     reads,
	proto.KindPrio:         reads,
	proto.KindWhy:          reads,
	proto.KindReservations: reads,
	proto.KindSteps:        reads,
	proto.KindPeers:        reads,
	proto.KindDaemon:       reads,
	proto.KindControllers:  reads,

	proto.KindEditAccounts: edits,
	proto.KindMoney:        reads,
	proto.KindEditMoney:    runs,
	proto.KindUpdateNode:   runs,
	proto.KindReserve:      runs,
	proto.KindMIG:          runs,
	proto.KindSetDebug:     runs,

	proto.KindUpdatePartition: runs,

	proto.KindDiagReset: runs,
	proto.KindDoctor:    runs,
	proto.KindDump:      runs,

	proto.KindReconfigure:     rules,
	proto.KindTakeover:        rules,
	proto.KindEditControllers: rules,

	proto.KindCrontab:    {Refused, Own, Own, All, All, Passes, Refused, Passes, Refused},
	proto.KindSetCrontab: tokens, // on nodes neither: what one says would last longer than its user's jobs there

	proto.KindTriggers:      reads,
	proto.KindSetTrigger:    {Refused, Own, Own, All, All, Passes, Refused, Passes, Refused}, // as crontabs
	proto.KindClearTriggers: tokens,

	proto.KindToken:      tokens,
	proto.KindEditTokens: tokens,

	proto.KindCerts:     keys,
	proto.KindEditCerts: keys,
	proto.KindJoin:      anyone, // who has a token
	proto.KindTime:      anyone, // whose certificate is out of date
	proto.KindRenew:     daemons,
	proto.KindRevoked:   daemons,
	proto.KindSign:      ofCtld,

	proto.KindOnce:  carries,
	proto.KindStale: carries,

	proto.KindForward:    {LoginHost: Itself, Node: Itself, Controller: Itself},
	proto.KindHello:      {Node: Itself},
	proto.KindWelcome:    ofLeader,
	proto.KindOrders:     ofLeader,
	proto.KindReportAck:  ofLeader,
	proto.KindNodeAsk:    ofLeader,
	proto.KindReports:    ofNode,
	proto.KindHeartbeat:  ofNode,
	proto.KindNodeAnswer: ofNode,
	proto.KindWitness:    {Node: Itself, Controller: Itself},
	proto.KindMoment:     ofCtld,
	proto.KindPut:        ofCtld,
	proto.KindQuery:      ofCtld,
	proto.KindUsage:      ofCtld,
	proto.KindSamples:    ofCtld,
	proto.KindPast:       ofCtld,
	proto.KindAsked:      ofCtld,
	proto.KindSight:      ofCtld,
	proto.KindBackup:     ofKeeper,
	proto.KindBeginEmpty: ofKeeper,
	proto.KindDbd:        ofKeeper,
}
