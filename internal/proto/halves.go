package proto

// halves.go divides parts of streamed answers that are too long for a frame.

// Halver is a part of a list. Halves gives two parts with its entries, in order; the second is nil if it has only one.
type Halver interface {
	Message
	Halves() (first, second Message)
}

// half divides a list in the middle; false: it has less than two entries.
func half[T any](list []T) (first, second []T, ok bool) {
	n := len(list) / 2
	return list[:n], list[n:], n > 0
}

// Halves divides the jobs.
func (x *JobsChunk) Halves() (first, second Message) {
	a, b, ok := half(x.Jobs)
	if !ok {
		return x, nil
	}
	return &JobsChunk{Now: x.Now, Rules: x.Rules, Jobs: a}, &JobsChunk{Now: x.Now, Jobs: b}
}

// Halves divides the nodes.
func (x *NodesChunk) Halves() (first, second Message) {
	a, b, ok := half(x.Nodes)
	if !ok {
		return x, nil
	}
	return &NodesChunk{Now: x.Now, Nodes: a}, &NodesChunk{Now: x.Now, Nodes: b}
}

// Halves divides the rows.
func (x *PrioChunk) Halves() (first, second Message) {
	a, b, ok := half(x.Rows)
	if !ok {
		return x, nil
	}
	one, two := *x, *x
	one.Rows, two.Rows = a, b
	return &one, &two
}

// Halves divides the steps.
func (x *StepsChunk) Halves() (first, second Message) {
	a, b, ok := half(x.Steps)
	if !ok {
		return x, nil
	}
	one, two := *x, *x
	one.Steps, two.Steps, two.Missing = a, b, nil
	return &one, &two
}

// Halves divides all four lists.
func (x *AccountsChunk) Halves() (first, second Message) {
	one, two := *x, *x
	var of [4]bool
	one.Accounts, two.Accounts, of[0] = half(x.Accounts)
	one.Users, two.Users, of[1] = half(x.Users)
	one.Assocs, two.Assocs, of[2] = half(x.Assocs)
	one.QOS, two.QOS, of[3] = half(x.QOS)
	if of == [4]bool{} {
		return x, nil
	}
	return &one, &two
}
