package rest

import (
	"fmt"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// tools.go is slurmrestd's two tools about lists of hosts, and making and removing nodes.

// badHosts refuses a list of hosts.
func badHosts(err error) error {
	return &fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode), Detail: err.Error()}
}

// maxHosts bounds a list of hosts.
const maxHosts = 65536

// expand gives the hosts of a list such as n[1-4].
func expand(text string) ([]string, error) {
	n, err := hostlist.Count(text)
	if err == nil && n > maxHosts {
		err = fmt.Errorf("%d hosts, at most %d are possible", n, maxHosts)
	}
	if err != nil {
		return nil, badHosts(err)
	}
	list, err := hostlist.Expand(text)
	if err != nil {
		return nil, badHosts(err)
	}
	return list, nil
}

// postHostnames expands a list.
func postHostnames(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	text := b.str("hostlist")
	if err := q.done(b); err != nil {
		return err
	}
	list, err := expand(text)
	if err == nil {
		q.j.List("hostnames", list)
	}
	return err
}

// postHostlist compresses one.
func postHostlist(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	names, _ := b.list("hostnames")
	if err := q.done(b); err != nil {
		return err
	}
	if len(names) > maxHosts {
		return badHosts(fmt.Errorf("%d hosts, at most %d are possible", len(names), maxHosts))
	}
	q.j.Str("hostlist", hostlist.CompressInOrder(names))
	return nil
}

// confWords splits a line of NAME=VALUE words; quotes keep blanks together.
func confWords(line string) ([]model.KV, error) {
	var out []model.KV
	var word strings.Builder
	quoted, any := false, false
	end := func() error {
		if !any {
			return nil
		}
		key, value, has := strings.Cut(word.String(), "=")
		if !has || key == "" {
			return fmt.Errorf("'%s' is not NAME=VALUE", word.String())
		}
		out = append(out, model.KV{Key: key, Value: value})
		word.Reset()
		any = false
		return nil
	}
	for _, c := range line {
		switch {
		case c == '"':
			quoted, any = !quoted, true
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if err := end(); err != nil {
				return nil, err
			}
		default:
			word.WriteRune(c)
			any = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quotation mark is not closed")
	}
	return out, end()
}

// postNewNode makes nodes from a line as in the configuration: NodeName=n[5-6] CPUs=8 ...
func postNewNode(q *request) error {
	b, err := q.body()
	if err != nil {
		return err
	}
	line := b.str("node_conf")
	if err := q.done(b); err != nil {
		return err
	}
	words, err := confWords(line)
	if err != nil {
		return &fault{Number: errBadNode, Text: "Invalid node configuration", Detail: "node_conf: " + err.Error()}
	}
	rq := &proto.UpdateNodeRequest{Action: proto.CreateNodes}
	for _, kv := range words {
		if strings.EqualFold(kv.Key, "NodeName") {
			if rq.Names, err = expand(kv.Value); err != nil {
				return err
			}
			continue
		}
		rq.Set = append(rq.Set, kv)
	}
	if len(rq.Names) == 0 {
		return &fault{Number: errBadNode, Text: proto.Text(proto.CodeInvalidNode),
			Detail: "node_conf is a line such as NodeName=n5 CPUs=8 RealMemory=16000"}
	}
	return q.ask(proto.KindUpdateNode, rq, &proto.Empty{})
}

func deleteNode(q *request) error {
	return q.ask(proto.KindUpdateNode, &proto.UpdateNodeRequest{Action: proto.DeleteNodes, Names: []string{q.name}},
		&proto.Empty{})
}
