package state

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

// Commands and records from a log or a snapshot are checked for shape once, when they are decoded: all other code
// relies on it.

// ErrMalformed is what every error about a command's or a record's shape wraps.
var ErrMalformed = errors.New("malformed")

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

// validSubmitted is validSpec for a job that does not come back: those that do are in a Crontab.
func validSubmitted(sp *model.Spec) error {
	if err := validSpec(sp); err != nil {
		return err
	}
	if sp.Cron != nil {
		return malformed("a job of a crontab without the crontab")
	}
	return nil
}

func validBody(b Body) error {
	switch b := b.(type) {
	case *Submit:
		return validSubmitted(b.Spec)
	case *SubmitHet:
		if n := len(b.Parts); n < 2 || n > model.MaxHet {
			return malformed("a heterogeneous job of %d components, it has 2 to %d", n, model.MaxHet)
		}
		for i := range b.Parts {
			if err := validSubmitted(b.Parts[i].Spec); err != nil {
				return err
			}
			if len(b.Parts[i].Spec.Tasklist) > 0 {
				return malformed("an array of heterogeneous jobs")
			}
		}
	case *Starts:
		for _, c := range b.Plan.Claims {
			if c.Claim != nil && c.Claim.Alloc == nil {
				return malformed("a claim of job %d to nothing", c.Job)
			}
		}
	case *Stop:
		return validTargets(b.Targets)
	case *Suspend:
		return validTargets(b.Targets)
	case *Edit:
		if slices.Contains(b.Set, SetSpec) && b.Spec == nil {
			return malformed("a change of specification without one")
		}
		return validTargets(b.Targets)
	case *SetConfig:
		return validConfig(b.Config)
	case *Accounts:
		return validAccounts(b)
	case *Credit:
		if b.Account == "" || b.Op != price.AddCredit && b.Op != price.SetBudget || b.Amount > price.MaxMoney ||
			b.Amount < -price.MaxMoney {
			return malformed("%d of %s for account %q", b.Op, b.Amount, b.Account)
		}
	case *Issue:
		if b.Account == "" || b.Number == 0 || b.Start >= b.End || b.Total != price.Total(b.Bills) {
			return malformed("invoice %d of account %q", b.Number, b.Account)
		}
	case *Define:
		if slices.Contains(b.Nodes, nil) || slices.Contains(b.Parts, nil) {
			return malformed("an empty definition of a node or partition")
		}
	case *Crontab:
		return validCrontab(b)
	case *Triggers:
		return validTriggers(b)
	case *Units:
		if len(b.Tells) > model.MaxUnitTells {
			return malformed("an account of %d units, the limit is %d", len(b.Tells), model.MaxUnitTells)
		}
		if len(b.Held) > model.MaxUnitTells {
			return malformed("an account of %d GPUs' memory, the limit is %d", len(b.Held), model.MaxUnitTells)
		}
	case *Certs:
		return validCerts(b)
	case *Tokens:
		return validTokens(b)
	case *Once:
		return validOnce(b)
	case *Reserve:
		return validReservation(b.Resv, b.Op != DropResv)
	}
	return nil
}

func validSpec(sp *model.Spec) error {
	if sp == nil {
		return malformed("a submission without a specification")
	}
	for _, d := range sp.Deps {
		if d.Failed || d.Kind == 0 {
			return malformed("a dependency of no kind, or failed from the start")
		}
	}
	if err := validTasks(sp.Tasklist); err != nil {
		return err
	}
	if n := sp.Tasklist.Count(); n > MaxTasks {
		return malformed("an array of %d tasks, the limit is %d", n, MaxTasks)
	}
	return nil
}

// validAccounts checks that every edit has its record, and every record a name that is safe in a key.
func validAccounts(c *Accounts) error {
	if len(c.Edits) > MaxAcctEdits {
		return malformed("%d edits of accounts, the limit is %d", len(c.Edits), MaxAcctEdits)
	}
	for i := range c.Edits {
		e := &c.Edits[i]
		var names []string
		whole := false
		switch e.Op {
		case model.PutAccount, model.DropAccount:
			if whole = e.Account != nil; whole {
				names = []string{e.Account.Name}
			}
		case model.PutUser, model.DropUser:
			if whole = e.User != nil; whole {
				names = []string{e.User.Name}
			}
		case model.PutAssoc, model.DropAssoc, model.ResetUsage:
			if whole = e.Assoc != nil; whole {
				names = []string{e.Assoc.Account, e.Assoc.User, e.Assoc.Partition}
			}
		case model.PutQOS, model.DropQOS:
			if whole = e.QOS != nil; whole {
				names = []string{e.QOS.Name}
			}
		case model.RenameUser:
			if whole = e.User != nil && e.NewName != ""; whole {
				names = []string{e.User.Name, e.NewName}
			}
		case model.PutWCKey, model.DropWCKey:
			if whole = e.WCKey != nil && e.WCKey.User != ""; whole {
				names = []string{e.WCKey.Name, e.WCKey.User}
			}
		}
		if !whole || names[0] == "" {
			return malformed("edit %d of accounts (operation %d) lacks its record or its name", i, e.Op)
		}
		for _, n := range names {
			if strings.ContainsRune(n, 0) {
				return malformed("edit %d of accounts has a name with a NUL", i)
			}
		}
	}
	return nil
}

func validTargets(list []model.JobRef) error {
	for _, t := range list {
		if err := validTasks(t.Tasks); err != nil {
			return err
		}
	}
	return nil
}

func validTasks(set model.TaskSet) error {
	if !set.Valid() {
		return malformed("task ranges that are not ascending: %.80s", fmt.Sprint([]model.Range(set)))
	}
	return nil
}

func validConfig(c *model.Config) error {
	if c == nil {
		return malformed("no configuration")
	}
	if slices.Contains(c.Nodes, nil) || slices.Contains(c.Partitions, nil) {
		return malformed("a configuration with an empty node or partition")
	}
	return nil
}

// validJob checks that a record has the parts that its state needs.
func validJob(j *model.Job) error {
	var what string
	switch {
	case j.State < model.Pending || j.State > model.Resizing:
		what = "is in no known state"
	case j.State == model.Pending && (j.Run != nil || j.End != nil):
		what = "is pending, and ran"
	case j.State.HasResources() && (j.Run == nil || j.End != nil):
		what = "has resources without a run, or an end"
	case j.State.Finished() && j.End == nil:
		what = "is over without an end"
	case j.Run != nil && (j.Run.Alloc == nil || len(j.Run.Alloc.Nodes) == 0):
		what = "ran without an allocation"
	case j.State == model.Suspended && j.Run.Sleep == model.Awake, j.State == model.Running && j.Run.Sleep != model.Awake:
		what = "is suspended or runs, and the other of its parts says otherwise"
	case j.Claim != nil && j.Claim.Alloc == nil:
		what = "claims nothing"
	case !j.ValidHet():
		what = "is a component of a heterogeneous job under a wrong number"
	case !j.Tasks.Valid() || !j.Spec.Tasklist.Valid():
		what = "has task ranges that are not ascending"
	default:
		return nil
	}
	return malformed("job %d (%s) %s", j.ID, j.State, what)
}
