package env

import (
	"gbatch/internal/client"
	"gbatch/internal/format"
	"gbatch/internal/jobtext"
	"gbatch/internal/proto"
)

// Numbers asks for the numbers of associations and QOS if a table shows them or need says so, and else gives nil. To
// users who may not see accounts, and while no controller answers, all of them are 0.
func Numbers[T any](c *client.Client, p *format.Printer[T], need bool) (*jobtext.Numbers, error) {
	if p != nil { // no JSON
		for f := range p.Fields {
			need = need || jobtext.NeedNumbers(f.Name)
		}
	}
	if !need {
		return nil, nil
	}
	n := &jobtext.Numbers{}
	err := c.Stream(proto.KindAccounts, &proto.AccountsRequest{}, func(body []byte) error {
		var chunk proto.AccountsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		n.Add(&chunk)
		return nil
	})
	if code := Code(err); code == proto.CodeAccess || code == proto.CodeNoController {
		return n, nil
	}
	return n, err
}
