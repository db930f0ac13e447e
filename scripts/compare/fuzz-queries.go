package main

// Random command lines that ask: squeue, sinfo, sacct, sprio, sshare, sacctmgr, scontrol and sreport with random
// fields, widths, orders and filters.

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// query makes one random question.
func (all options) query(r *rand.Rand) string {
	commands := []string{
		"squeue", "squeue", "squeue", "sacct", "sacct", "sacct", "sinfo", "sinfo", "scontrol", "sacctmgr",
		"sprio", "sshare", "sreport",
	}
	command := commands[r.IntN(len(commands))]
	fields := command
	words := []string{command}
	switch command {
	case "scontrol":
		words = append(words, all.some(r, command, 1)...)
		return strings.Join(append(words, "show", all.word(r, "scontrol.things")), " ")
	case "sacctmgr":
		fields = []string{"assoc", "qos", "user", "account"}[r.IntN(4)]
		flag := []string{"", "-P", "-n", "-p", "-nP"}[r.IntN(5)]
		words = append(words, flag, []string{"list", "show"}[r.IntN(2)], fields)
		if r.IntN(3) == 0 {
			words = append(words, all.word(r, "sacctmgr.ends"))
		}
		words = append(words, all.some(r, command, 1)...)
	case "sreport":
		// Options stand before the report, what it is asked behind it.
		var behind []string
		for _, o := range all.some(r, command, 3) {
			if strings.HasPrefix(o, "-") {
				words = append(words, o)
			} else {
				behind = append(behind, o)
			}
		}
		words = append(append(words, all.word(r, "sreport.reports")), behind...)
	default:
		words = append(words, all.some(r, command, 4)...)
	}
	line := strings.Join(strings.Fields(strings.Join(words, " ")), " ")
	for _, list := range []string{"letters", "names", "fields", "order"} {
		for strings.Contains(line, "'<"+list+">'") {
			line = strings.Replace(line, "'<"+list+">'", quoted(all.columns(r, fields, list)), 1)
		}
	}
	return line
}

func (all options) word(r *rand.Rand, list string) string {
	from := all["<"+list+">"][0].values
	return from[r.IntN(len(from))]
}

// columns makes a random value of -o, -O or -S.
func (all options) columns(r *rand.Rand, command, list string) string {
	var parts []string
	for range 1 + r.IntN(4) {
		parts = append(parts, all.column(r, list, all.word(r, command+"."+list)))
	}
	if list == "letters" {
		between := []string{" ", "|", "", " x "}
		return strings.Join(parts, between[r.IntN(len(between))])
	}
	return strings.Join(parts, ",")
}

// column gives one field a random width.
func (all options) column(r *rand.Rand, list, name string) string {
	width := ""
	if r.IntN(2) == 0 {
		width = fmt.Sprint([]int{1, 3, 8, 14, 30}[r.IntN(5)])
	}
	switch list {
	case "letters":
		if width != "" && r.IntN(2) == 0 {
			width = "." + width
		}
		return "%" + width + name
	case "names":
		if width == "" {
			return name
		}
		return name + []string{":", ":.", ":-"}[r.IntN(5)%3] + width + []string{"", "", "|"}[r.IntN(3)]
	case "fields":
		if width == "" {
			return name
		}
		return name + "%" + []string{"", "", "-"}[r.IntN(3)] + width
	}
	return name
}
