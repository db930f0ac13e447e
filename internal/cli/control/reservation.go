package control

import (
	"errors"
	"fmt"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// gcontrol create|update|delete|show reservation, in scontrol's words.

// resvWords writes shortened keys of reservations in full, and their times as the controller reads them.
func (c *control) resvWords(set []model.KV) error {
	for i := range set {
		set[i].Key = ask.ResvKey(set[i].Key)
	}
	return c.moments(set, "starttime", "endtime")
}

// createReservation makes one.
func (c *control) createReservation(ch *change) error {
	name, set := ch.name, ch.set
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
	case !has("Nodes", "NodeList", "NodeCnt", "NodeCount", "CoreCnt", "CoreCount", "TRES", "TRESPerNode", "Licenses",
		"License", "PartitionName", "Partition", "BurstBuffer", "Watts"): // the last two are refused with their reasons
		return errors.New("CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.  No " +
			"reservation created.")
	case !has("Users", "User", "Accounts", "Account", "Groups", "Group"):
		return errors.New("Either Users/Groups and/or Accounts must be specified.  No reservation created.")
	}
	return c.reserve(&proto.ReserveRequest{Action: proto.CreateReservation, Name: name, Set: set},
		"Error creating the reservation", "Reservation created: %s\n")
}

// updateReservation changes one.
func (c *control) updateReservation(name string, set []model.KV) error {
	switch {
	case name == "":
		return errors.New("which reservation? Write ReservationName=NAME before what is to change")
	case len(set) == 0:
		return fmt.Errorf("nothing to change: give KEY=VALUE words behind ReservationName=%s, such as "+
			"EndTime=18:00 or Users=+ann", name)
	}
	return c.reserve(&proto.ReserveRequest{Action: proto.UpdateReservation, Name: name, Set: set},
		"Error updating the reservation", "Reservation updated.\n")
}

func (c *control) reserve(rq *proto.ReserveRequest, failed, done string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.ReserveReply
	if err := cl.Call(proto.KindReserve, rq, &reply); err != nil {
		return plain{fmt.Errorf("%s: %s", failed, env.Text(err))}
	}
	if strings.Contains(done, "%s") {
		done = fmt.Sprintf(done, reply.Name)
	}
	if !c.quiet {
		fmt.Fprint(c.Stdout, done)
	}
	return nil
}

// showReservations prints all, or the named one.
func (c *control) showReservations(name string) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	var reply proto.ReservationsReply
	if err := cl.Call(proto.KindReservations, &proto.Empty{}, &reply); err != nil {
		return plain{fmt.Errorf("slurm_load_reservations error: %s", env.Text(err))}
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
		c.print(jobtext.ShowReservation(v, &reply.Sizes[i], reply.Now, c.Clock()))
	}
	switch {
	case shown > 0:
	case name != "":
		fmt.Fprintf(c.Stdout, "Reservation %s not found\n", name)
		return plain{errors.New("")}
	default:
		fmt.Fprintln(c.Stdout, "No reservations in the system")
	}
	return nil
}
