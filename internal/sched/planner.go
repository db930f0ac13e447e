package sched

import (
	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Planner is Plan for whoever plans again and again. It gives the plans that Plan gives.
type Planner struct{}

// NewPlanner gives a Planner for the views of one State.
func NewPlanner() *Planner { return &Planner{} }

// Plan is the package's Plan.
func (*Planner) Plan(v *state.View, now model.Time, p Policy) model.Plan { return Plan(v, now, p) }
