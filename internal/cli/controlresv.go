package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// gcontrol create|update|delete|show reservation, in scontrol's words.

// create makes a reservation; other things are made in the configuration.
func (c *control) create(words []string) error {
	name, set, ok, err := resvWords(words)
	switch {
	case err != nil:
		return err
	case !ok:
		return errors.New("create what? Reservation=NAME StartTime=... Duration=... Nodes=... Users=...; partitions and nodes are made in gbatch.conf, then gcontrol reconfigure")
	}
	has := func(keys ...string) bool {
		for _, kv := range set {
			for _, k := range keys {
				if strings.EqualFold(kv.Key, k) {
					return true
				}
			}
		}
		return false
	}
	switch {
	case !has("StartTime"):
		return errors.New("A start time must be given.  No reservation created.")
	case !has("EndTime", "Duration"):
		return errors.New("An end time or duration must be given.  No reservation created.")
	case !has("Nodes", "NodeList", "NodeCnt", "NodeCount", "CoreCnt", "CoreCount", "TRES", "TRESPerNode", "Licenses", "License", "PartitionName", "Partition"):
		return errors.New("CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.  No reservation created.")
	case !has("Users", "User", "Accounts", "Account", "Groups", "Group"):
		return errors.New("Either Users/Groups and/or Accounts must be specified.  No reservation created.")
	}
	return c.reserve(&proto.ReserveRequest{Action: proto.CreateReservation, Name: name, Set: set}, "Error creating the reservation", "Reservation created: %s\n")
}

// remove deletes a reservation.
func (c *control) remove(words []string) error {
	name, set, ok, err := resvWords(words)
	switch {
	case err != nil:
		return err
	case !ok || name == "" || len(set) > 0:
		return errors.New("delete what? ReservationName=NAME; partitions and nodes leave with gbatch.conf and gcontrol reconfigure, jobs end with gcancel")
	}
	return c.reserve(&proto.ReserveRequest{Action: proto.DeleteReservation, Name: name}, "delete_reservation "+name, "")
}

// updateReservation changes one.
func (c *control) updateReservation(name string, set []model.KV) error {
	return c.reserve(&proto.ReserveRequest{Action: proto.UpdateReservation, Name: name, Set: set}, "Error updating the reservation", "Reservation updated.\n")
}

func (c *control) reserve(rq *proto.ReserveRequest, failed, done string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.ReserveReply
	if err := cl.Call(proto.KindReserve, rq, &reply); err != nil {
		return plain{fmt.Errorf("%s: %s", failed, text(err))}
	}
	if strings.Contains(done, "%s") {
		done = fmt.Sprintf(done, reply.Name)
	}
	if !c.quiet {
		fmt.Fprint(c.Stdout, done)
	}
	return nil
}

// resvWords reads [reservation] [ReservationName=NAME] KEY=VALUE...; ok says that they speak of a reservation.
func resvWords(words []string) (name string, set []model.KV, ok bool, err error) {
	for i, w := range words {
		key, value, has := strings.Cut(w, "=")
		low := strings.ToLower(key)
		switch {
		case strings.HasPrefix("reservationname", low) && strings.HasPrefix(low, "res"):
			name, ok = value, true
		case !has && i == 1 && ok && name == "":
			name = w
		case low == "skip" && !has:
			set = append(set, model.KV{Key: "Skip"})
		case !has:
			return "", nil, false, fmt.Errorf("'%s' is not KEY=VALUE; write reservations as in ReservationName=maint StartTime=now Duration=60 Users=root Nodes=ALL Flags=MAINT", w)
		case low == "starttime" || low == "endtime":
			t, err := walltime.ParseDate(value, time.Now())
			if err != nil {
				return "", nil, false, err
			}
			set = append(set, model.KV{Key: key, Value: fmt.Sprintf("@%d", t.UnixMilli())})
		default:
			set = append(set, model.KV{Key: key, Value: value})
		}
	}
	return name, set, ok, nil
}

// showReservations prints all, or the named one.
func (c *control) showReservations(name string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.ReservationsReply
	if err := cl.Call(proto.KindReservations, &proto.Empty{}, &reply); err != nil {
		return plain{fmt.Errorf("slurm_load_reservations error: %s", text(err))}
	}
	if c.json != "" {
		return c.reservationsJSON(cl, &reply, name)
	}
	shown := 0
	for i, v := range reply.List {
		if name != "" && v.Name != name {
			continue
		}
		shown++
		c.print(showReservation(v, &reply.Sizes[i], reply.Now, c.times()))
	}
	switch {
	case shown > 0:
	case name != "":
		return plain{fmt.Errorf("Reservation %s not found", name)}
	default:
		fmt.Fprintln(c.Stdout, "No reservations in the system")
	}
	return nil
}

// showReservation gives a reservation as scontrol show reservation does, at a time of the controller.
func showReservation(v *model.Reservation, size *proto.ResvSize, now model.Time, at *moments) *record {
	state := "INACTIVE"
	if v.Start <= now && now < v.End {
		state = "ACTIVE"
	}
	list := func(names []string) string { return orNull(strings.Join(names, ",")) }
	flags := v.Flags.Names()
	for i, f := range flags {
		if f == "PURGE_COMP" {
			flags[i] += "=" + walltime.Elapsed(v.PurgeS)
		}
	}
	var lics []string
	for _, l := range v.Licenses {
		lics = append(lics, fmt.Sprintf("%s:%d", l.Name, l.Count))
	}
	r := &record{}
	r.line(kv("ReservationName", v.Name), kv("StartTime", at.stamp(v.Start, "N/A")), kv("EndTime", at.stamp(v.End, "N/A")),
		kv("Duration", walltime.ElapsedLimit(int64(v.End-v.Start)/1000, false)))
	r.line(kv("Nodes", hostlist.CompressSorted(v.Nodes)), kv("NodeCnt", len(v.Nodes)), kv("CoreCnt", size.Cores), kv("Features", orNull(v.Features)),
		kv("PartitionName", orNull(v.Partition)), kv("Flags", strings.Join(flags, ",")))
	for i, name := range v.Nodes[:min(len(v.Parts), len(v.Nodes))] {
		p := &v.Parts[i]
		line := []string{"  " + kv("NodeName", name), kv("CPUs", p.CPUs), kv("Mem", walltime.FormatMem(p.MemMiB))}
		if i < len(size.PartGres) && size.PartGres[i] != "" {
			line = append(line, kv("GRES", size.PartGres[i]))
		}
		r.line(line...)
	}
	r.line("TRES=" + resvTRES(v, size))
	r.line(kv("Users", list(v.Users)), kv("Groups", list(v.Groups)), kv("Accounts", list(v.Accounts)), kv("Licenses", list(lics)), kv("State", state), "BurstBuffer=(null)", "Watts=n/a")
	r.line("MaxStartDelay=(null)")
	return r
}

// resvTRES gives what a reservation takes of its nodes, in Slurm's words.
func resvTRES(v *model.Reservation, size *proto.ResvSize) string {
	out := []string{fmt.Sprintf("cpu=%d", size.CPUs)}
	for _, g := range size.Gres {
		if g.Count > 0 {
			out = append(out, fmt.Sprintf("%s=%d", g.TRES, g.Count))
		}
	}
	for _, l := range v.Licenses {
		out = append(out, fmt.Sprintf("license/%s=%d", l.Name, l.Count))
	}
	return strings.Join(out, ",")
}
