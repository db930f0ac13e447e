package info

import (
	"fmt"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// reservations prints ginfo -T: a line for each reservation, in sinfo's columns.
func (i *info) reservations() int {
	c, err := i.Connect()
	if err != nil {
		i.Errorf("%s", env.Text(err))
		return 1
	}
	defer c.Close()
	if err := i.CheckClusters(c, i.clusters); err != nil {
		i.Errorf("%v", err)
		return 1
	}
	var reply proto.ReservationsReply
	if err := c.Call(proto.KindReservations, &proto.Empty{}, &reply); err != nil {
		fmt.Fprintf(i.Stderr, "slurm_load_reservations: %s\n", env.Text(err))
		return 1
	}
	if len(reply.List) == 0 {
		fmt.Fprintln(i.Stdout, "No reservations in the system")
		return 0
	}
	at := i.Times(time.Now())
	wide := len("RESV_NAME")
	for _, r := range reply.List {
		wide = max(wide, len(r.Name))
	}
	line := func(a ...any) {
		fmt.Fprintf(i.Stdout, "%-*s  %8s  %19s  %19s  %11s  %s\n", append([]any{wide}, a...)...)
	}
	if !i.noHeader {
		line("RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST")
	}
	for _, r := range reply.List {
		state := "INACTIVE"
		if r.Start <= reply.Now && reply.Now < r.End {
			state = "ACTIVE"
		}
		line(r.Name, state, at.Append(nil, r.Start, "n/a"), at.Append(nil, r.End, "n/a"),
			walltime.ElapsedLimit(int64(r.End-r.Start)/1000, false), hostlist.CompressSorted(r.Nodes))
	}
	return 0
}
