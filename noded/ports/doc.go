// Package ports chooses the ports of a step that has asked for some (grun --resv-ports), from those
// of MpiParams. It knows no step and keeps nothing: the caller says which ports are held.
//
// The node that manages a step chooses for all of the step's nodes, and each node refuses ports
// that another step holds there, so no port is given twice on a node. Managers of different jobs
// that share a node begin at places that they draw, so they seldom choose the same.
package ports
